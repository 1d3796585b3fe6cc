//! S3 and compatible stores, using object_store: it takes credentials and endpoints from the environment like other
//! tools, signs requests, and handles the stores' dialects. Its requests are asynchronous; here, a single thread waits
//! for each of them in its own runtime.
//!
//! The rule: object_store retries nothing itself, so that every retry is counted.

use std::cell::Cell;
use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{
    ClientConfigKey, ClientOptions, Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, RetryConfig,
};

use crate::address::RemoteAddress;
use crate::error::RemoteError;
use crate::folder::MARK_NAME;
use crate::store::{ObjectFacts, RemoteStore, Sent, StopWaiting, piece_bytes};

/// Interval between checks for stopping during a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Without a connection within this time, the store is considered silent.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Time limit for a request: enough for 16 MiB at slightly more than 1 Mbit/s. `AWS_TIMEOUT` raises it for slower
/// links.
const REQUEST_MAX: Duration = Duration::from_secs(120);
/// How many times an unanswered piece is retried before the whole file is.
const PIECE_RETRIES: u32 = 4;
/// Size of the pieces in which objects are read.
const READ_BYTES: u64 = 8 << 20;

/// A bucket.
pub(crate) struct S3Store {
    bucket: String,
    client: AmazonS3,
    runtime: tokio::runtime::Runtime,
    stop: StopWaiting,
    retries: Cell<u64>,
    /// Whether the environment contains keys; if not, the machine's metadata service is queried.
    has_keys: bool,
}

/// An endpoint without TLS is used only with explicit permission.
#[derive(Debug, thiserror::Error)]
#[error("{0} does not use TLS; set AWS_ALLOW_HTTP=true if that is intended")]
struct PlainEndpoint(String);

impl S3Store {
    /// Opens a bucket with the settings in the environment. Nothing is sent yet.
    pub fn open(address: &RemoteAddress, stop: StopWaiting) -> Result<S3Store, RemoteError> {
        let setup = |source| RemoteError::Setup {
            address: address.to_string(),
            source,
        };
        // TLS uses ring, as everywhere in this program. The provider may already be installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| setup(Box::new(error)))?;
        let retry = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let options = ClientOptions::new()
            .with_connect_timeout(CONNECT_MAX)
            .with_timeout(REQUEST_MAX);
        // Must come last: it replaces the client options from the environment, which are applied again below.
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&address.bucket)
            .with_retry(retry);
        builder = builder.with_client_options(with_environment(options));
        let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
            .iter()
            .find_map(|key| builder.get_config_value(key))
            .unwrap_or_default();
        let allows_plain = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
        let is_allowed = builder
            .get_config_value(&allows_plain)
            .is_some_and(|value| value == "true");
        if endpoint.starts_with("http://") && !is_allowed {
            return Err(setup(Box::new(PlainEndpoint(endpoint))));
        }
        let is_signed = builder
            .get_config_value(&AmazonS3ConfigKey::SkipSignature)
            .is_none_or(|skip| skip != "true");
        let has_keys = !is_signed
            || builder
                .get_config_value(&AmazonS3ConfigKey::AccessKeyId)
                .is_some();
        let client = builder.build().map_err(|error| setup(Box::new(error)))?;
        Ok(S3Store {
            bucket: address.bucket.clone(),
            client,
            runtime,
            stop,
            retries: Cell::new(0),
            has_keys,
        })
    }

    /// Waits for an answer until `stop` returns true.
    fn wait<T>(
        &self,
        key: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, RemoteError> {
        self.runtime.block_on(async {
            let mut request = std::pin::pin!(request);
            loop {
                match tokio::time::timeout(POLL_INTERVAL, request.as_mut()).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(error)) => return Err(self.error(key, error).await),
                    Err(_) if (self.stop)() => return Err(RemoteError::Interrupted),
                    Err(_) => {}
                }
            }
        })
    }

    async fn error(&self, key: &str, error: Error) -> RemoteError {
        let (bucket, key) = (self.bucket.clone(), key.to_string());
        if !self.has_keys && self.client.credentials().get_credential().await.is_err() {
            return RemoteError::NoCredentials { bucket };
        }
        of_library(bucket, key, error)
    }

    /// Converts the error of a request that sends something: if something is missing, it can only be the bucket.
    fn error_of_sending(&self, error: RemoteError) -> RemoteError {
        match error {
            RemoteError::Gone { bucket, .. } => RemoteError::NoBucket { bucket },
            error => error,
        }
    }

    /// Converts the error of a list request. The library doesn't distinguish a missing bucket from other errors there,
    /// but does so for uploads; starting and aborting an upload stores nothing.
    fn error_of_listing(&self, folder: &str, error: RemoteError) -> RemoteError {
        let probe = Key::from(format!("{folder}/{MARK_NAME}"));
        match self.wait(folder, self.client.create_multipart(&probe)) {
            Ok(upload) => {
                let _ = self.wait(folder, self.client.abort_multipart(&probe, &upload));
                error
            }
            Err(RemoteError::Gone { bucket, .. }) => RemoteError::NoBucket { bucket },
            Err(denied @ RemoteError::Denied { .. }) => denied,
            Err(_) => error,
        }
    }

    fn send_whole(&self, key: &str, bytes: Bytes) -> Result<Sent, RemoteError> {
        let path = Key::from(key);
        let send = async |mode| {
            let options = PutOptions {
                mode,
                ..PutOptions::default()
            };
            match self
                .client
                .put_opts(&path, bytes.clone().into(), options)
                .await
            {
                Ok(_) => Ok(Sent::Stored),
                Err(Error::AlreadyExists { .. }) => Ok(Sent::Exists),
                Err(error) => Err(error),
            }
        };
        let sent = self.wait(key, async {
            match send(PutMode::Create).await {
                // With AWS_CONDITIONAL_PUT=disabled, for stores without If-None-Match, the preceding lookup has to
                // suffice.
                Err(Error::NotImplemented { .. }) => send(PutMode::Overwrite).await,
                sent => sent,
            }
        });
        sent.map_err(|error| self.error_of_sending(error))
    }

    /// Sends a file in pieces, one request each.
    fn send_pieces(&self, key: &str, path: &Path, piece_bytes: u64) -> Result<Sent, RemoteError> {
        let to = Key::from(key);
        let upload = self.wait(key, self.client.create_multipart(&to));
        let upload = upload.map_err(|error| self.error_of_sending(error))?;
        let send = || {
            let mut file = File::open(path).map_err(RemoteError::io(path))?;
            let mut pieces = Vec::new();
            loop {
                let mut piece = Vec::new();
                let mut bounded = file.by_ref().take(piece_bytes);
                bounded
                    .read_to_end(&mut piece)
                    .map_err(RemoteError::io(path))?;
                if piece.is_empty() {
                    break;
                }
                let (index, piece) = (pieces.len(), Bytes::from(piece));
                let sent = self.of_piece(key, || {
                    self.client
                        .put_part(&to, &upload, index, piece.clone().into())
                });
                pieces.push(sent?);
            }
            self.wait(key, self.client.complete_multipart(&to, &upload, pieces))
        };
        match send() {
            Ok(_) => Ok(Sent::Stored),
            Err(error) => {
                // Pieces of an unfinished upload cost money. If this request fails, too, a lifecycle rule has to remove
                // them.
                let _ = self.wait(key, self.client.abort_multipart(&to, &upload));
                Err(error)
            }
        }
    }

    /// Retries a piece that got no answer, so that the other pieces don't have to be sent again.
    fn of_piece<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        key: &str,
        request: impl Fn() -> F,
    ) -> Result<T, RemoteError> {
        let mut attempt = 0;
        loop {
            match self.wait(key, request()) {
                Err(error) if error.is_passing() && attempt < PIECE_RETRIES => {
                    let pause = Duration::from_millis(250 << attempt);
                    let rest = async {
                        tokio::time::sleep(pause).await;
                        Ok(())
                    };
                    self.wait(key, rest)?;
                    attempt += 1;
                    self.retries.set(self.retries.get() + 1);
                }
                answer => return answer,
            }
        }
    }
}

/// Converts an error of the library. Errors that the library doesn't classify are [`Error::Generic`] or, with status
/// 409, conflicts: no answer was received, or one such as 503 that may differ next time.
fn of_library(bucket: String, key: String, error: Error) -> RemoteError {
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => RemoteError::Denied {
            bucket,
            key,
            source: Box::new(error),
        },
        Error::NotFound { .. } => RemoteError::Gone { bucket, key },
        Error::Generic { .. } | Error::AlreadyExists { .. } => RemoteError::Unreachable {
            bucket,
            key,
            source: Box::new(error),
        },
        error => RemoteError::Unsupported {
            bucket,
            key,
            source: Box::new(error),
        },
    }
}

/// Adds client options from the environment (AWS_ALLOW_HTTP, AWS_TIMEOUT, AWS_PROXY_URL …), which override ours.
fn with_environment(options: ClientOptions) -> ClientOptions {
    std::env::vars().fold(options, |options, (name, value)| {
        let key = name
            .strip_prefix("AWS_")
            .and_then(|name| name.to_ascii_lowercase().parse().ok());
        match key {
            Some(key) => options.with_config(key, value),
            None => options,
        }
    })
}

fn facts(meta: ObjectMeta) -> ObjectFacts {
    let etag = meta
        .e_tag
        .map(|etag| etag.trim_matches('"').to_ascii_lowercase());
    let modified_ms = u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0);
    ObjectFacts {
        key: meta.location.to_string(),
        bytes: meta.size,
        etag,
        modified_ms,
    }
}

impl RemoteStore for S3Store {
    fn stat(&self, key: &str) -> Result<Option<ObjectFacts>, RemoteError> {
        match self.wait(key, self.client.head(&Key::from(key))) {
            Ok(meta) => Ok(Some(facts(meta))),
            Err(RemoteError::Gone { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send_file(&self, key: &str, path: &Path, bytes: u64) -> Result<Sent, RemoteError> {
        match piece_bytes(bytes) {
            Some(piece_bytes) => self.send_pieces(key, path, piece_bytes),
            None => {
                let content = std::fs::read(path).map_err(RemoteError::io(path))?;
                self.send_whole(key, content.into())
            }
        }
    }

    fn send_bytes(&self, key: &str, bytes: &[u8]) -> Result<Sent, RemoteError> {
        self.send_whole(key, Bytes::copy_from_slice(bytes))
    }

    fn replace_bytes(&self, key: &str, bytes: &[u8]) -> Result<(), RemoteError> {
        let (to, bytes) = (Key::from(key), Bytes::copy_from_slice(bytes));
        let sent = self.wait(key, self.client.put(&to, bytes.into()));
        sent.map(|_| ())
            .map_err(|error| self.error_of_sending(error))
    }

    fn delete(&self, key: &str) -> Result<(), RemoteError> {
        match self.wait(key, self.client.delete(&Key::from(key))) {
            Err(RemoteError::Gone { .. }) => Ok(()),
            answer => answer,
        }
    }

    fn read(
        &self,
        key: &str,
        each: &mut dyn FnMut(&[u8]) -> Result<bool, RemoteError>,
    ) -> Result<(), RemoteError> {
        let from = Key::from(key);
        let bytes = self.wait(key, self.client.head(&from))?.size;
        let mut start = 0;
        while start < bytes {
            let range = start..bytes.min(start + READ_BYTES);
            let piece = self.of_piece(key, || self.client.get_range(&from, range.clone()))?;
            if !each(&piece)? {
                break;
            }
            start = range.end;
        }
        Ok(())
    }

    fn list(&self, folder: &str, count_max: usize) -> Result<Vec<ObjectFacts>, RemoteError> {
        let prefix = (!folder.is_empty()).then(|| Key::from(folder));
        let mut stream = self.client.list(prefix.as_ref());
        let mut found = Vec::new();
        while found.len() < count_max {
            let next = self.wait(folder, async { stream.next().await.transpose() });
            match next.map_err(|error| self.error_of_listing(folder, error))? {
                Some(meta) => found.push(facts(meta)),
                None => break,
            }
        }
        Ok(found)
    }

    fn retries(&self) -> u64 {
        self.retries.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only errors that may not recur are retried.
    #[test]
    fn errors_that_would_recur_are_final() {
        let cause = || "cause".into();
        let path = || "key".to_string();
        let store = "S3";
        let is_passing = |error| of_library("bucket".into(), path(), error).is_passing();
        for error in [
            Error::Generic {
                store,
                source: cause(),
            },
            Error::AlreadyExists {
                path: path(),
                source: cause(),
            },
        ] {
            assert!(is_passing(error));
        }
        let (operation, implementer) = (path(), path());
        for error in [
            Error::NotFound {
                path: path(),
                source: cause(),
            },
            Error::PermissionDenied {
                path: path(),
                source: cause(),
            },
            Error::Unauthenticated {
                path: path(),
                source: cause(),
            },
            Error::NotSupported { source: cause() },
            Error::NotImplemented {
                operation,
                implementer,
            },
            Error::Precondition {
                path: path(),
                source: cause(),
            },
            Error::UnknownConfigurationKey { store, key: path() },
        ] {
            let said = error.to_string();
            assert!(!is_passing(error), "{said}");
        }
    }
}
