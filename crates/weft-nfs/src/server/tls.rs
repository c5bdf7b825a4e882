//! RPC over TLS (RFC 9289): what the server shows, and whom it asks to show what.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, crypto};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The protocol's name (RFC 9289 8.2).
const PROTOCOL: &[u8] = b"sunrpc";
/// How long a client has to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Files, all in PEM, that TLS needs.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and those that lead to one that clients trust.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who vouches for clients. Without it clients need no certificate.
    pub client_authorities: Option<PathBuf>,
}

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {} for TLS: {source}", file.display())]
pub struct TlsError {
    file: PathBuf,
    source: Box<dyn Error + Send + Sync>,
}

/// Begins TLS on connections.
pub(super) struct Tls(TlsAcceptor);

fn with<E: Into<Box<dyn Error + Send + Sync>>>(file: &Path) -> impl FnOnce(E) -> TlsError {
    move |source| TlsError { file: file.into(), source: source.into() }
}

impl Tls {
    /// Reads `files`.
    pub(super) fn new(files: &TlsFiles) -> Result<Tls, TlsError> {
        let (certificate, key) = (files.certificate.as_path(), files.key.as_path());
        let chain = certificates(certificate)?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| with(key)(error.to_string()))?;
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone());
        let config = config.with_protocol_versions(&[&rustls::version::TLS13]).map_err(with(certificate))?;
        let config = match &files.client_authorities {
            None => config.with_no_client_auth(),
            Some(file) => {
                let mut trusted = RootCertStore::empty();
                for authority in certificates(file)? {
                    trusted.add(authority).map_err(with(file))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), provider).build();
                config.with_client_cert_verifier(verifier.map_err(with(file))?)
            }
        };
        let mut config = config.with_single_cert(chain, secret).map_err(with(certificate))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }

    /// Agrees on keys with whoever is at the other end. None: they could not, or did not in time.
    pub(super) async fn begin(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let stream = tokio::time::timeout(HANDSHAKE, self.0.accept(stream)).await.ok()?.ok()?;
        // Who wants to speak something else over it has come to the wrong place.
        (stream.get_ref().1.alpn_protocol() == Some(PROTOCOL)).then_some(stream)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(file).and_then(|found| found.collect::<Result<Vec<_>, _>>());
    let read = read.map_err(|error| with(file)(error.to_string()))?;
    if read.is_empty() { Err(with(file)("there is no certificate in it")) } else { Ok(read) }
}
