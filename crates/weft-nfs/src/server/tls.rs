//! RPC over TLS (RFC 9289): the certificates of the server and of clients.

use crate::refused::Refused;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, crypto};
use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The protocol's name (RFC 9289 8.2).
const PROTOCOL: &[u8] = b"sunrpc";
/// Longest time for a client to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Files, all in PEM, that TLS needs.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and those that lead to one that clients trust.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities that vouch for clients. Without it clients need no certificate.
    pub client_authorities: Option<PathBuf>,
}

/// Reason that TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {} for TLS: {source}", file.display())]
pub struct TlsError {
    file: PathBuf,
    source: Box<dyn Error + Send + Sync>,
}

/// Begins TLS on connections.
pub(super) struct Tls {
    acceptor: TlsAcceptor,
    /// Machines that could not begin and that were logged.
    refused: Refused,
}

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
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), refused: Refused::default() })
    }

    /// Agrees on keys with the client at `address`. None if that failed, or took too long; the
    /// failure is logged.
    pub(super) async fn begin(&self, stream: TcpStream, address: IpAddr) -> Option<TlsStream<TcpStream>> {
        let begun = match tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream)).await {
            Ok(begun) => begun,
            Err(_) => Err(io::Error::other("it did not agree on keys in time")),
        };
        // A client that speaks something else over it has come to the wrong place.
        let is_ours = |stream: &TlsStream<TcpStream>| stream.get_ref().1.alpn_protocol() == Some(PROTOCOL);
        match begun {
            Ok(stream) if is_ours(&stream) => return Some(stream),
            Ok(_) => self.refuse(address, "it would speak something else than RPC"),
            Err(error) => self.refuse(address, error),
        }
        None
    }

    fn refuse(&self, address: IpAddr, why: impl fmt::Display) {
        self.refused.log(address, format_args!("cannot begin TLS: {why}"));
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(file).and_then(|found| found.collect::<Result<Vec<_>, _>>());
    let read = read.map_err(|error| with(file)(error.to_string()))?;
    if read.is_empty() { Err(with(file)("there is no certificate in it")) } else { Ok(read) }
}
