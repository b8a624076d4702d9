//! Connections, and what becomes of each request.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::{Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::request::{Kind, Request};
use super::{Fault, Shared, Weather};
use crate::cluster::Certificate;

/// Why a connection ends without a reply: the client went away, the API server did not answer, or so it was [`PLANNED`].
type Cut = Box<dyn std::error::Error + Send + Sync>;

const PLANNED: &str = "cut as planned";

pub(super) fn acceptor(certificate: &Certificate) -> Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(&certificate.certificate)
        .context("reading the certificate")?
        .collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(&certificate.key).context("reading the key")?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub(super) async fn listen(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely; others close theirs.
            tokio::task::yield_now().await;
            continue;
        };
        if shared.plan().weather == Weather::Unreachable {
            continue;
        }
        tokio::spawn(connection(stream, acceptor.clone(), Arc::clone(&shared)));
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut cut = shared.cut.subscribe();
    cut.borrow_and_update();
    let serve = async {
        let stream = acceptor.accept(stream).await?;
        let service = service_fn(|request| answer(request, Arc::clone(&shared)));
        http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await
            .context("serving")
    };
    tokio::select! {
        served = serve => {
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended");
            }
        }
        _ = cut.changed() => {}
    }
}

async fn answer(
    request: http::Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Body>, Cut> {
    let (parts, body) = request.into_parts();
    let seen = Request::new(&parts.method, &parts.uri);
    let body = body.collect().await?.to_bytes();
    let verdict = admit(&seen, &shared);
    shared.tell();
    let fault = match verdict {
        Admission::Pass => None,
        Admission::Struck(fault) => Some(fault),
        Admission::Answer(status, reason) => return refusal(status, reason),
        // Until the connection is cut: whoever sent this is to be gone by then.
        Admission::Hold => std::future::pending().await,
    };
    if fault == Some(Fault::NeverArrives) {
        return Err(Cut::from(PLANNED));
    }
    // A client that goes away takes its connection and this future with it; what was let in goes on all the same.
    let forwarded = tokio::spawn(forward(parts, body, shared.upstream.clone()));
    let reply = forwarded.await?;
    match fault {
        None => reply,
        Some(Fault::NeverArrives | Fault::LostReply) => {
            struck(&shared, seen);
            Err(Cut::from(PLANNED))
        }
        Some(Fault::LastOfAll) => {
            struck(&shared, seen);
            reply
        }
    }
}

enum Admission {
    Pass,
    Struck(Fault),
    Answer(u16, &'static str),
    Hold,
}

fn admit(seen: &Request, shared: &Shared) -> Admission {
    let mut plan = shared.plan();
    plan.requests.push(seen.clone());
    if let Weather::Answer { to, status, reason } = &plan.weather
        && to.contains(&seen.kind)
    {
        return Admission::Answer(*status, reason);
    }
    if seen.kind != Kind::Write {
        return Admission::Pass;
    }
    if plan.closed {
        return Admission::Hold;
    }
    plan.writes.push(seen.clone());
    let ordinal = plan.writes.len();
    let fault = match &plan.strike {
        Some((strike, fault)) if strike.hits(&plan.writes) => *fault,
        Some(_) | None => return Admission::Pass,
    };
    match fault {
        Fault::NeverArrives => plan.struck.push((ordinal, seen.clone())),
        Fault::LostReply => {}
        Fault::LastOfAll => plan.closed = true,
    }
    Admission::Struck(fault)
}

/// Notes a write that was carried out. Told of only now, so that whoever waits for it may rely on that.
fn struck(shared: &Shared, seen: Request) {
    let mut plan = shared.plan();
    let at = plan.writes.iter().position(|write| write.at == seen.at);
    let ordinal = at.map_or(0, |at| at + 1);
    plan.struck.push((ordinal, seen));
    drop(plan);
    shared.tell();
}

async fn forward(
    mut parts: http::request::Parts,
    body: Bytes,
    upstream: kube::Client,
) -> Result<Response<Body>, Cut> {
    // The client puts the real server's address in; the body has one length, known now.
    let mut uri = http::uri::Parts::default();
    uri.path_and_query = parts.uri.path_and_query().cloned();
    parts.uri = http::Uri::from_parts(uri)?;
    for name in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let request = http::Request::from_parts(parts, Body::from(body));
    let mut reply = upstream.send(request).await?;
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        reply.headers_mut().remove(name);
    }
    Ok(reply)
}

fn refusal(status: u16, reason: &str) -> Result<Response<Body>, Cut> {
    let code = StatusCode::from_u16(status)?;
    let object = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": format!("{reason}, as planned"), "reason": reason, "code": status,
    });
    let mut reply = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json");
    if code == StatusCode::TOO_MANY_REQUESTS || code == StatusCode::SERVICE_UNAVAILABLE {
        reply = reply.header(header::RETRY_AFTER, "1");
    }
    Ok(reply.body(Body::from(object.to_string().into_bytes()))?)
}
