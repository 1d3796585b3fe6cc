//! Lakes and traces in an object store: finds the objects that a query needs, and what DuckDB needs to read them
//! itself. Fetches only the list of objects, the catalog and the table `notes`; the engine reads the rest.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brunt_capture::trace::{notes, tables};
use brunt_lake::reader::{IntactParts, PartFile};
use brunt_remote::{
    RemoteAddress, RemoteError, RemoteStore, StopWaiting, StoreRetry, StoredLake, open_store,
};
use brunt_result::tables::TABLES;

use super::lake::{FolderError, Lake, LakeTable, WantedTables};
use crate::cli::{Failure, Output};
use crate::commands::remote::failure;

/// Maximum time to wait for an answer from the store.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Opens the requested tables at an address.
pub fn open(
    address: &str,
    wanted: &WantedTables<'_>,
    scratch: &Path,
    output: &Output,
) -> Result<Lake, Failure> {
    let address: RemoteAddress = address.parse().map_err(failure)?;
    let interrupted = output.interrupt_flag().clone();
    let stop: StopWaiting = Arc::new(move || interrupted.load(Ordering::Relaxed));
    let store = open_store(&address, Arc::clone(&stop)).map_err(failure)?;
    let mut retry = StoreRetry::new(SILENCE_MAX, stop);
    let stored = retry
        .until_answered(|| StoredLake::read(&*store, &address))
        .map_err(failure)?;
    let mut lake = Lake::nothing();
    let tables = if stored.parts(tables::NOTES.name).is_empty() {
        if TABLES
            .iter()
            .all(|table| stored.parts(table.name).is_empty())
        {
            return Err(FolderError::Neither(address.to_string()).into_failure());
        }
        if wanted.is_of_traces {
            return Err(FolderError::NoTrace(address.to_string()).into_failure());
        }
        TABLES.to_vec()
    } else {
        retry
            .until_answered(|| fetch_notes(&*store, &address, &stored, scratch))
            .map_err(failure)?;
        let damaged = notes(scratch)
            .map_err(|error| FolderError::from(error).into_failure())?
            .damaged;
        lake.notes = damaged
            .iter()
            .map(|error| format!("left out: {error}"))
            .collect();
        tables::of_lake()
    };
    for table in tables.into_iter().filter(|table| wanted.has(table.name)) {
        let objects = stored.parts(table.name);
        let url =
            |path: &str| PathBuf::from(format!("s3://{}/{}", address.bucket, address.key(path)));
        let (captured, of_lake): (Vec<_>, Vec<_>) = objects
            .iter()
            .map(|(path, _)| url(path))
            .partition(|url| PartFile::parse(url).is_some());
        // The parts' footers are not read here; the engine reports missing columns.
        let group = |files, has_twins| IntactParts {
            files,
            has_twins,
            ..IntactParts::default()
        };
        let mut groups = vec![group(of_lake, true), group(captured, false)];
        groups.retain(|group| !group.files.is_empty());
        let bytes = objects.iter().map(|(_, bytes)| bytes).sum();
        lake.tables.push(LakeTable {
            table,
            groups,
            bytes,
        });
    }
    lake.secret = Some(secret(&|name| {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }));
    Ok(lake)
}

/// Fetches the table that records a trace's version, naming its parts as if they had been captured here.
fn fetch_notes(
    store: &dyn RemoteStore,
    address: &RemoteAddress,
    stored: &StoredLake,
    folder: &Path,
) -> Result<(), RemoteError> {
    let folder = folder.join(tables::NOTES.name);
    let io = |source| RemoteError::Io {
        path: folder.clone(),
        source,
    };
    std::fs::create_dir_all(&folder).map_err(io)?;
    for (number, (path, _)) in stored.parts(tables::NOTES.name).iter().enumerate() {
        let mut bytes = Vec::new();
        store.read(&address.key(path), &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(true)
        })?;
        std::fs::write(folder.join(PartFile::name(0, number as u64)), bytes).map_err(io)?;
    }
    Ok(())
}

/// The statement that gives DuckDB the credentials and endpoint that this program uses.
fn secret(variable: &dyn Fn(&str) -> Option<String>) -> String {
    let quoted = |value: String| format!("'{}'", value.replace('\'', "''"));
    let mut options = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        options.extend(value.map(|value| format!(", {name} {}", quoted(value))));
    };
    match variable("AWS_ACCESS_KEY_ID") {
        Some(key) => {
            add("KEY_ID", Some(key));
            add("SECRET", variable("AWS_SECRET_ACCESS_KEY"));
            add("SESSION_TOKEN", variable("AWS_SESSION_TOKEN"));
        }
        None => add("PROVIDER", Some("credential_chain".into())),
    }
    let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
    add("REGION", Some(region.unwrap_or_else(|| "us-east-1".into())));
    if let Some(endpoint) = variable("AWS_ENDPOINT_URL").or_else(|| variable("AWS_ENDPOINT")) {
        let (scheme, host) = endpoint.split_once("://").unwrap_or(("https", &endpoint));
        add("ENDPOINT", Some(host.trim_end_matches('/').to_string()));
        add("URL_STYLE", Some("path".into()));
        add("USE_SSL", Some((scheme == "https").to_string()));
    }
    format!("CREATE SECRET (TYPE s3{})", options.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_has_the_credentials_of_the_environment() {
        let of = |variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
            secret(&|name| find(name).map(|(_, value)| value.to_string()))
        };
        assert_eq!(
            of(&[]),
            "CREATE SECRET (TYPE s3, PROVIDER 'credential_chain', REGION 'us-east-1')"
        );
        let local = [
            ("AWS_ACCESS_KEY_ID", "me"),
            ("AWS_SECRET_ACCESS_KEY", "it's"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/"),
        ];
        assert_eq!(
            of(&local),
            "CREATE SECRET (TYPE s3, KEY_ID 'me', SECRET 'it''s', REGION 'us-east-1', ENDPOINT '127.0.0.1:9000', \
             URL_STYLE 'path', USE_SSL 'false')"
        );
    }
}
