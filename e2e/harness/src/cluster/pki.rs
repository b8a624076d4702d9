//! Certificates and keys of one cluster.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// The cluster's certificate authority and what it signed, as files in one folder.
pub(super) struct Pki {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// PEM file of the certificate.
    pub certificate: PathBuf,
    /// PEM file of the key.
    pub key: PathBuf,
}

impl Pki {
    pub(super) fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "test-cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let pki = Self {
            folder: folder.into(),
            issuer,
        };
        fs::write(pki.authority(), pki.issuer.pem())?;
        let tokens = KeyPair::generate()?;
        fs::write(pki.token_key(), tokens.serialize_pem())?;
        fs::write(pki.token_public_key(), tokens.public_key_pem())?;
        Ok(pki)
    }

    /// PEM file of the certificate authority.
    pub(super) fn authority(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// PEM file of the key that signs service account tokens.
    pub(super) fn token_key(&self) -> PathBuf {
        self.folder.join("service-accounts.key")
    }

    /// PEM file of the key that proves service account tokens.
    pub(super) fn token_public_key(&self) -> PathBuf {
        self.folder.join("service-accounts.pub")
    }

    /// A certificate that a server shows.
    pub(super) fn server(&self, name: &str) -> Result<Certificate> {
        let names = [
            "127.0.0.1",
            "10.0.0.1",
            "localhost",
            "kubernetes.default.svc",
        ];
        let mut params = CertificateParams::new(names.map(String::from))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params, &format!("{name}-serving"))
    }

    /// A certificate that makes its holder the user `user` in `group`.
    pub(super) fn client(&self, user: &str, group: Option<&str>) -> Result<Certificate> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let group = group.unwrap_or("no-group");
        self.sign(params, &format!("{user}+{group}").replace([':', '/'], "_"))
    }

    fn sign(&self, mut params: CertificateParams, name: &str) -> Result<Certificate> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let signed = params.signed_by(&key, &self.issuer)?;
        let pair = Certificate {
            certificate: self.folder.join(format!("{name}.pem")),
            key: self.folder.join(format!("{name}.key")),
        };
        fs::write(&pair.certificate, signed.pem())?;
        fs::write(&pair.key, key.serialize_pem())?;
        Ok(pair)
    }
}
