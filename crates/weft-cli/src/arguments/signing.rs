//! Arguments of the commands about commits: their log, signatures and proofs.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use weft_store::Moment;

#[derive(Args)]
pub struct Prove {
    /// The directory, or VOLUME:PATH for one in a volume that is not mounted
    pub directory: OsString,
    /// A path in it, of which the proof says what it holds
    pub path: OsString,
    /// Read all content, also where digests are kept
    #[arg(long)]
    pub read: bool,
    /// The directory as it was at this moment, as of 'weft mount'; with VOLUME:PATH or a path in a
    /// mounted volume, there now or not
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub at: Option<Moment>,
}

#[derive(Args)]
pub struct Log {
    /// The volume, or the directory where it is mounted; or a file or directory in it, as
    /// VOLUME:PATH or by its path in the mount
    #[arg(value_name = "VOLUME|PATH")]
    pub volume: PathBuf,
    /// List those of this moment and later ones, as of 'weft mount'
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub since: Option<Moment>,
    /// List so many at most
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = super::limit)]
    pub limit: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Keygen {
    /// File to write the secret key to
    pub secret: PathBuf,
    /// File to write the public key to
    pub public: PathBuf,
    /// Do not ask for a password to protect the secret key with
    #[arg(long)]
    pub no_password: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Sign {
    /// The volume, or the directory where it is mounted
    pub volume: PathBuf,
    /// The secret key, of 'weft keygen' or minisign
    #[arg(short, long, value_name = "FILE")]
    pub key: PathBuf,
    /// File to write what is signed to
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Verify {
    /// File of what was signed
    pub attestation: PathBuf,
    /// The public key
    #[arg(short, long, value_name = "FILE")]
    pub key: PathBuf,
    /// A volume, or the directory where it is mounted, that must hold exactly what was signed
    #[arg(long)]
    pub volume: Option<PathBuf>,
    /// Read all of its content, instead of trusting the digests that it keeps
    #[arg(long, requires = "volume")]
    pub read: bool,
    /// Compare with the volume as of this moment, as of 'weft mount', also while it is mounted
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true, requires = "volume")]
    pub at: Option<Moment>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct VerifyProof {
    /// The proof, or - for standard input
    pub proof: PathBuf,
    /// It must be about the directory of this digest
    #[arg(long, value_name = "DIGEST")]
    pub root: Option<String>,
    /// It must be about a file with the content of this one
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
