//! A thread that serves a site until dropped. The rule: no client delays anything else. Each client has a few
//! seconds, only a few are served at once (`place`), and the program doesn't wait for any of them when it ends.
//!
//! Each connection serves one request: an idle connection would occupy a place that another client waits for.

use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::{HeaderName, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::Next;
use axum::response::Response;
use axum::{Extension, Router, middleware};
use futures_util::future::{Either, select};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::access::host;
use super::answer::{name_methods, plain};
use super::place::{PATIENCE, Place, Places};
use super::stalled::StallGuard;

/// Limit for the request line and headers: the smallest that hyper allows.
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Maximum number of pages rendered at once, off the thread that answers requests.
const MAKERS_MAX: usize = 2;
/// Delay before accepting again when the system has run out of descriptors.
const BREATH: Duration = Duration::from_millis(10);

/// Serves a site until it is dropped.
pub struct HttpServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Serves this site on this listener; `name` is used to name its threads.
    ///
    /// # Errors
    /// A thread can't be started.
    pub(crate) fn start(listener: TcpListener, name: &str, site: Router) -> io::Result<HttpServer> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name(format!("{name} maker"))
            .max_blocking_threads(MAKERS_MAX)
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        // This layer is outermost, because a router adds a path's allowed methods to a response only after its own
        // layers.
        let site = Router::new()
            .fallback_service(site)
            .layer(middleware::from_fn(with_one_host))
            .layer(middleware::map_response(add_security_headers));
        let work = move || {
            runtime.block_on(async {
                let _ = select(pin!(accept(listener, site)), stopped).await;
            });
            // Cuts off current clients and abandons pages that are being rendered.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(work)?;
        Ok(HttpServer {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Rejects requests that violate HTTP/1.1 by naming no host, or several.
async fn with_one_host(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let refused = host(&parts).err();
    match refused {
        None => next.run(Request::from_parts(parts, body)).await,
        Some(refusal) => plain(refusal.status(), format!("{refusal}\n")),
    }
}

/// Forbids content sniffing and use by other sites.
async fn add_security_headers(answer: Response) -> Response {
    let mut answer = name_methods(answer);
    let headers = answer.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(policy, HeaderValue::from_static("same-origin"));
    answer
}

async fn accept(listener: tokio::net::TcpListener, site: Router) {
    let places = Places::new();
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let place = places.take().await;
                tokio::spawn(answer(socket, place, site.clone()));
            }
            // For example, the process may have run out of descriptors: others may be closed soon.
            Err(_) => sleep(BREATH).await,
        }
    }
}

/// Serves one request.
async fn answer(socket: TcpStream, place: Arc<Place>, site: Router) {
    // Frames are sent whole, so don't delay them.
    let _ = socket.set_nodelay(true);
    let site = site.layer(Extension(Arc::clone(&place)));
    let exchange = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .title_case_headers(true) // for people who search headers with grep
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(
            TokioIo::new(StallGuard::new(socket)),
            TowerToHyperService::new(site),
        );
    match select(pin!(exchange), pin!(place.ends())).await {
        // The client is gone, doesn't use HTTP, or is too slow.
        Either::Left((_, _)) | Either::Right(((), _)) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::mpsc::channel;

    use axum::http::StatusCode;
    use axum::routing::get;

    use super::super::answer::wrong_method;
    use super::super::place::CLIENTS_MAX;
    use super::*;

    /// Serves one page.
    fn serve(
        page: impl Fn() -> String + Clone + Send + Sync + 'static,
    ) -> (HttpServer, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let site = Router::new()
            .route("/page", get(move || async move { page() }))
            .route(
                "/order",
                axum::routing::post(async || plain(StatusCode::OK, "")),
            )
            .method_not_allowed_fallback(async || wrong_method())
            .fallback(async || plain(StatusCode::NOT_FOUND, "see /page\n"));
        (HttpServer::start(listener, "test", site).unwrap(), at)
    }

    fn ask(at: SocketAddr, request: &str) -> String {
        let mut socket = TcpStream::connect(at).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn each_request_gets_its_status_and_body() {
        let (_server, at) = serve(|| "a 1\n".to_string());
        let check = |request: &str, begin: &str, end: &str| {
            let answer = ask(at, request);
            assert!(
                answer.starts_with(begin) && answer.ends_with(end),
                "{request}: {answer}"
            );
        };
        check(
            "GET /page HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "\r\n\r\na 1\n",
        );
        check(
            "GET /page?x HTTP/1.0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n",
            "\r\n\r\na 1\n",
        );
        check(
            "HEAD /page HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "\r\n\r\n",
        );
        check(
            "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 404",
            "see /page\n",
        );
        check(
            "POST /page HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 405",
            "use GET, HEAD\n",
        );
        check(
            "PUT /order HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 405",
            "use POST\n",
        );
        for hosts in ["", "Host: x\r\nHost: x\r\n"] {
            let request = format!("GET /page HTTP/1.1\r\n{hosts}\r\n");
            check(&request, "HTTP/1.1 400", "\n");
        }
        check("\0\u{ff}\r\n\r\n", "HTTP/1.1 400", "\r\n\r\n");
        let long = format!(
            "GET /{} HTTP/1.1\r\nHost: x\r\n\r\n",
            "x".repeat(HEAD_BYTES_MAX)
        );
        check(&long, "HTTP/1.1 431", "\r\n\r\n");
        let many = "A: b\r\n".repeat(HEADERS_MAX + 1);
        check(
            &format!("GET /page HTTP/1.1\r\nHost: x\r\n{many}\r\n"),
            "HTTP/1.1 431",
            "\r\n\r\n",
        );
        // Other sites can't use the page, and the connection closes after one request.
        let answer = ask(at, "GET /page HTTP/1.1\r\nHost: x\r\n\r\n").to_ascii_lowercase();
        for header in [
            "nosniff",
            "cross-origin-resource-policy: same-origin",
            "connection: close",
        ] {
            assert!(answer.contains(header), "{header}: {answer}");
        }
    }

    /// A client that doesn't read and a client that sends no request delay neither other clients nor the server's
    /// end.
    #[test]
    fn slow_clients_delay_no_others() {
        // This is more than socket buffers hold.
        let (server, at) = serve(|| "x".repeat(64 << 20));
        let mut deaf = TcpStream::connect(at).unwrap();
        deaf.write_all(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let _silent = TcpStream::connect(at).unwrap();
        assert!(ask(at, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("see /page\n"));
        // The response to the client has started.
        assert!(deaf.peek(&mut [0]).is_ok_and(|count| count > 0));
        let (done, wait) = channel();
        std::thread::spawn(move || {
            drop(server);
            done.send(()).unwrap();
        });
        wait.recv_timeout(Duration::from_secs(120))
            .expect("the server ends without waiting for clients");
        // The client was connected the whole time.
        deaf.set_nonblocking(true).unwrap();
        assert!(deaf.read(&mut [0; 16]).is_ok_and(|count| count > 0));
    }

    /// Many clients that don't read, send nothing, or send one byte at a time are cut off to serve one that behaves.
    #[test]
    fn slow_clients_are_cut_off_to_make_room() {
        let (_server, at) = serve(|| "x".repeat(16 << 20));
        let asks = |request: &'static [u8]| {
            let mut socket = TcpStream::connect(at).unwrap();
            socket.write_all(request).unwrap();
            socket
        };
        let requests: [&[u8]; 3] = [
            b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n",
            b"",
            b"GET /page HTTP/1.1\r\nX: y",
        ];
        let slow: Vec<TcpStream> = requests
            .iter()
            .flat_map(|request| (0..CLIENTS_MAX).map(|_| asks(request)))
            .collect();
        for _ in 0..3 {
            assert!(ask(at, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("see /page\n"));
        }
        // The last clients are still connected, so no more clients were cut off than necessary.
        let open = slow.iter().filter(|socket| {
            socket.set_nonblocking(true).unwrap();
            matches!((&**socket).read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        assert!(open.count() > 0);
    }
}
