//! Reads the token by which this agent proves to controllers which node it is.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{fs::File, io::AsyncReadExt, time::timeout};

/// Bytes that are read at most; a projected token has about 1,200.
const MAX_BYTES: u64 = 16 << 10;
/// Limit for reading the file, which is small and in memory.
const DEADLINE: Duration = Duration::from_secs(3);

/// The token was not read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the agent's token {}; see `token` of [controller] in its configuration", path.display())]
pub(super) struct TokenError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Reads the current token.
pub(super) async fn read(path: &Path) -> Result<String, TokenError> {
    let reading = async {
        let mut text = String::new();
        let file = File::open(path).await?;
        file.take(MAX_BYTES).read_to_string(&mut text).await?;
        Ok(text)
    };
    let text = timeout(DEADLINE, reading).await.unwrap_or_else(|_| {
        let message = format!("not read within {} s", DEADLINE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    });
    let text = text.map_err(|source| TokenError {
        path: path.to_owned(),
        source,
    })?;
    Ok(text.trim().to_owned())
}
