//! Protected connections, as libpq's `sslmode` and its companions ask for them (PostgreSQL
//! documentation, "SSL Support").

use super::address::{Address, Tls, TlsMode};
use super::connection::Driving;
use super::given_up::{IsGivenUp, given_up};
use crate::error::{Error, Result};
use futures_util::future::{Either, select};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::future::poll_fn;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Connects as `address` asks for, until it is given up. A warning that comes is noted.
pub(super) fn connect(
    runtime: &Runtime,
    address: &Address,
    ends: (&Arc<AtomicBool>, IsGivenUp),
) -> Result<(Client, Driving)> {
    let mode = address.tls.mode;
    // An address that is given besides is where the connection goes.
    let is_local = address.config.get_hostaddrs().is_empty()
        && address.config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    let plain = || connect_with(runtime, address, SslMode::Disable, None, ends);
    // A socket on this machine needs no protection, and PostgreSQL offers none there.
    if is_local || mode == TlsMode::Disable {
        return plain();
    }
    if mode == TlsMode::Allow
        && let Ok(connected) = plain()
    {
        return Ok(connected);
    }
    let offered = if mode == TlsMode::Prefer { SslMode::Prefer } else { SslMode::Require };
    let connected = connect_with(runtime, address, offered, Some(client(&address.tls)?), ends);
    match connected {
        // The server offers protection and then wants none of us who ask for it.
        Err(error) if mode == TlsMode::Prefer && is_refused(&error) => plain().or(Err(error)),
        connected => connected,
    }
}

/// True if the server refuses such a connection (pg_hba.conf), whatever the password.
fn is_refused(error: &Error) -> bool {
    let code = match error {
        Error::Postgres { source, .. } => source.code(),
        _ => None,
    };
    code == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}

fn connect_with(
    runtime: &Runtime,
    address: &Address,
    mode: SslMode,
    tls: Option<ClientConfig>,
    (warned, is_given_up): (&Arc<AtomicBool>, IsGivenUp),
) -> Result<(Client, Driving)> {
    let failed = |source| Error::Postgres { what: "cannot connect", server: address.server.clone(), source };
    let mut config = address.config.clone();
    config.ssl_mode(mode);
    let connecting = async {
        match tls {
            None => {
                let (client, driver) = config.connect(NoTls).await.map_err(failed)?;
                Ok((client, driving(driver, warned.clone())))
            }
            Some(tls) => {
                let (client, driver) = config.connect(MakeRustlsConnect::new(tls)).await.map_err(failed)?;
                Ok((client, driving(driver, warned.clone())))
            }
        }
    };
    runtime.block_on(async {
        match select(pin!(connecting), pin!(given_up(is_given_up))).await {
            Either::Left((connected, _)) => connected,
            Either::Right(((), _)) => Err(Error::GivenUp),
        }
    })
}

/// Sends and receives for `connection`, and notes each warning.
fn driving<S, T>(mut connection: tokio_postgres::Connection<S, T>, warned: Arc<AtomicBool>) -> Driving
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(poll_fn(move |context| {
        while let Some(message) = ready!(connection.poll_message(context)?) {
            if let AsyncMessage::Notice(notice) = message
                && *notice.code() == SqlState::WARNING
            {
                warned.store(true, Ordering::Relaxed);
            }
        }
        Poll::Ready(Ok(()))
    }))
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Unusable(format!("cannot use {}: {why}", path.display()))
}

fn client(tls: &Tls) -> Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&tls.protection.versions());
    let builder = builder.map_err(|error| Error::Bug(error.to_string()))?.dangerous();
    let builder = builder.with_custom_certificate_verifier(Arc::new(Verifier::new(tls, provider)?));
    let Some((certificate, key)) = &tls.own else {
        return Ok(telling_name(builder.with_no_client_auth(), tls));
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| unusable(certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
    let config = builder.with_client_auth_cert(chain, secret).map_err(|error| unusable(certificate, &error))?;
    Ok(telling_name(config, tls))
}

/// Returns `config`, set to send the server the name that is asked for or not (`sslsni`).
fn telling_name(mut config: ClientConfig, tls: &Tls) -> ClientConfig {
    config.enable_sni = tls.protection.tells_name;
    config
}

/// Requirements on the server's certificate.
#[derive(Debug)]
struct Verifier {
    /// Authorities that must vouch for it; none if nobody has to.
    roots: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates of those who vouch, by the file that names them: a server may have one of these
    /// itself.
    named: Vec<CertificateDer<'static>>,
    /// True if it must be for the name that was connected to.
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(tls: &Tls, provider: Arc<CryptoProvider>) -> Result<Verifier> {
        // As libpq has it, a user who names roots wants them used.
        let verifies = tls.mode >= TlsMode::VerifyCa || (tls.mode == TlsMode::Require && tls.roots.is_some());
        if !verifies {
            return Ok(Verifier { roots: None, named: Vec::new(), checks_name: false, provider });
        }
        let (mut store, mut named) = (RootCertStore::empty(), Vec::new());
        match &tls.roots {
            Some(path) => {
                let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
                named = certificates.map_err(|error| unusable(path, &error))?;
                for certificate in &named {
                    store.add(certificate.clone()).map_err(|error| unusable(path, &error))?;
                }
            }
            None => drop(store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        let roots = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone()).build();
        let roots = roots.map_err(|error| Error::Unusable(format!("nobody vouches for servers: {error}")))?;
        Ok(Verifier { roots: Some(roots), named, checks_name: tls.mode == TlsMode::VerifyFull, provider })
    }

    /// Verifies that `certificate`, which is trusted by itself and valid now, is for `name`. A
    /// self-signed certificate, as PostgreSQL's manual makes them ("Creating Certificates"; for a
    /// name it needs a subjectAltName besides), is no end of a chain for webpki, which says so
    /// after it has looked at the time.
    fn is_for(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if self.checks_name {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let Some(roots) = &self.roots else { return Ok(ServerCertVerified::assertion()) };
        match roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(why)))
                if why.to_string() == "CaUsedAsEndEntity" && self.named.contains(end_entity) =>
            {
                self.is_for(end_entity, server_name)
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
