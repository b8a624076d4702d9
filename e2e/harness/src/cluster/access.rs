//! Ways in: clients, kubeconfigs, tokens.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
use kube::{Api, Client, Config, api::PostParams, config::AuthInfo};
use serde_json::{Value, json};

use super::{TestCluster, pki::Certificate};

/// Lifetime of tokens, in seconds: longer than any test.
const TOKEN_SECONDS: i64 = 6 * 60 * 60;

impl TestCluster {
    /// Address of the API server.
    #[must_use]
    pub fn url(&self) -> String {
        self.ports.api_server.url("https")
    }

    /// PEM file of the cluster's certificate authority.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.pki.authority()
    }

    /// A new client that may do everything. Each belongs to the runtime it was made in, so that tests may share a cluster.
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "start() made a client from this very configuration"
    )]
    pub fn admin(&self) -> Client {
        self.client(certificate_login(&self.admin))
            .expect("the administrator's configuration was valid at the start")
    }

    /// A client that uses a token.
    ///
    /// # Errors
    /// When the client cannot be set up.
    pub fn client_for_token(&self, token: &str) -> Result<Client> {
        self.client_for_token_at(&self.url(), token)
    }

    /// The same through an address that is not the API server's own, such as a [`Faultline`](crate::faultline::Faultline)'s.
    ///
    /// # Errors
    /// When the client cannot be set up.
    pub fn client_for_token_at(&self, server: &str, token: &str) -> Result<Client> {
        let login = AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        };
        self.client_that_tries_once(server, login)
    }

    /// A client with a certificate for a user, such as a kubelet's: `("system:node:sim-1", Some("system:nodes"))`.
    ///
    /// # Errors
    /// When the certificate cannot be written.
    pub fn client_for_user(&self, user: &str, group: Option<&str>) -> Result<Client> {
        self.client(certificate_login(&self.pki.client(user, group)?))
    }

    /// A certificate for a user.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn certificate_for(&self, user: &str, group: Option<&str>) -> Result<Certificate> {
        self.pki.client(user, group)
    }

    /// A certificate for a server on this machine, such as a kubelet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn serving_certificate(&self, name: &str) -> Result<Certificate> {
        self.pki.server(name)
    }

    /// A client that says nothing about who it is; whatever its requests carry is passed on.
    pub(crate) fn client_without_login(&self) -> Result<Client> {
        self.client_that_tries_once(&self.url(), AuthInfo::default())
    }

    pub(super) fn client(&self, auth_info: AuthInfo) -> Result<Client> {
        self.client_at(&self.url(), auth_info)
    }

    pub(super) fn client_at(&self, url: &str, auth_info: AuthInfo) -> Result<Client> {
        Ok(Client::try_from(self.config(url, auth_info)?)?)
    }

    /// As the product's clients: a refusal for now (429, 503, 504) is told, not tried again for minutes.
    fn client_that_tries_once(&self, url: &str, auth_info: AuthInfo) -> Result<Client> {
        let mut config = self.config(url, auth_info)?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    fn config(&self, url: &str, auth_info: AuthInfo) -> Result<Config> {
        let mut config = Config::new(url.parse()?);
        config.root_cert_file = Some(self.pki.authority());
        config.auth_info = auth_info;
        Ok(config)
    }

    /// Kubeconfig of the administrator.
    #[must_use]
    pub fn kubeconfig_admin(&self) -> PathBuf {
        self.folder.path().join("kubeconfig").join("admin")
    }

    /// A kubeconfig that uses a token, e.g. to start a product binary as its service account.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_with_token(&self, name: &str, token: &str) -> Result<PathBuf> {
        self.write_kubeconfig(name, &self.url(), &json!({"token": token}))
    }

    /// The same for an address that is not the API server's own, such as a [`Faultline`](crate::faultline::Faultline)'s.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_with_token_at(
        &self,
        name: &str,
        server: &str,
        token: &str,
    ) -> Result<PathBuf> {
        self.write_kubeconfig(name, server, &json!({"token": token}))
    }

    /// A kubeconfig with a certificate for a user.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let pair = self.pki.client(user, group)?;
        self.write_kubeconfig(
            &user.replace([':', '/'], "_"),
            &self.url(),
            &certificate_user(&pair),
        )
    }

    pub(super) fn write_admin_kubeconfig(&self) -> Result<PathBuf> {
        self.write_kubeconfig("admin", &self.url(), &certificate_user(&self.admin))
    }

    /// Written as JSON, which is YAML.
    fn write_kubeconfig(&self, name: &str, server: &str, user: &Value) -> Result<PathBuf> {
        let path = self.folder.path().join("kubeconfig").join(name);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": self.authority()}}],
            "users": [{"name": "user", "user": user}],
        });
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, serde_json::to_vec_pretty(&config)?)
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// A token of a service account, from the TokenRequest API. Bound to a pod (by name), it carries the pod's node as well,
    /// and is valid for as long as the pod exists.
    ///
    /// # Errors
    /// When the service account or the pod does not exist.
    pub async fn service_account_token(
        &self,
        namespace: &str,
        name: &str,
        bound_pod: Option<&str>,
    ) -> Result<String> {
        let client = self.admin();
        let bound_object_ref = match bound_pod {
            None => None,
            Some(pod) => Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(pod.into()),
                uid: Api::<Pod>::namespaced(client.clone(), namespace)
                    .get(pod)
                    .await?
                    .metadata
                    .uid,
            }),
        };
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                bound_object_ref,
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let reply = Api::<ServiceAccount>::namespaced(client, namespace)
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("a token for {namespace}/{name}"))?;
        reply
            .status
            .and_then(|status| status.token)
            .context("the API server returned no token")
    }

    /// The real kubectl, as the administrator.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        self.kubectl_with(&self.kubeconfig_admin())
    }

    /// The real kubectl with a kubeconfig. Its discovery cache is the cluster's own.
    #[must_use]
    pub fn kubectl_with(&self, kubeconfig: &Path) -> Command {
        let mut command = Command::new(self.binaries.path("kubectl"));
        command
            .arg(format!(
                "--cache-dir={}",
                self.folder.path().join("kubeconfig/cache").display()
            ))
            .env("KUBECONFIG", kubeconfig);
        command
    }
}

fn certificate_login(pair: &Certificate) -> AuthInfo {
    AuthInfo {
        client_certificate: Some(pair.certificate.display().to_string()),
        client_key: Some(pair.key.display().to_string()),
        ..AuthInfo::default()
    }
}

fn certificate_user(pair: &Certificate) -> Value {
    json!({"client-certificate": pair.certificate, "client-key": pair.key})
}
