//! A page over HTTP/1.1, for as many as ask. The one rule: nobody who asks holds up anything else. Each has a thread and
//! a few seconds; there are never more than a few, and the end of the program waits for none of them. Where all places
//! are taken, whoever has had one longest is cut off, and makes room when its thread is through: slow ones do not blind
//! those who come after them, and a slow page makes no more threads.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cli::Failure;

/// How often the server looks whether it should stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Whoever has not asked and been answered after this is cut off.
const PATIENCE: Duration = Duration::from_secs(5);
/// Those who are answered at once; more wait until one of them has been answered, or cut off.
const CLIENTS_MAX: usize = 8;
/// Nobody is cut off for others before this: so long a client waits for its place at most, for each who waits before it.
const PLACE_LEAST: Duration = Duration::from_millis(100);
/// How often it is looked whether there is a place.
const PLACE_LOOK: Duration = Duration::from_millis(2);
/// A longer request is none.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Serves the page until it is dropped.
pub struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What all threads share.
struct Shared {
    /// One at a time makes it.
    page: Mutex<Box<dyn Fn() -> String + Send>>,
    /// Those who are being answered, in the order of their coming; some have gone.
    places: Mutex<VecDeque<Weak<Place>>>,
}

/// A client's place: free when its thread is through.
struct Place {
    socket: TcpStream,
    since: Instant,
}

impl Shared {
    /// Whether there is a place. If not, whoever has been there longest is cut off, once that was long enough; its place
    /// is free when its thread is through.
    fn make_room(&self) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|place| place.strong_count() > 0);
        if places.len() < CLIENTS_MAX {
            return true;
        }
        let Some(longest) = places.front().and_then(Weak::upgrade) else { return true };
        if longest.since.elapsed() >= PLACE_LEAST {
            // Its thread notices, at the latest when the page is made.
            let _ = longest.socket.shutdown(Shutdown::Both);
        }
        false
    }
}

impl Server {
    /// Answers on this listener.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(
        listener: TcpListener,
        page: impl Fn() -> String + Send + 'static,
    ) -> Result<Server, Failure> {
        let cannot = |error| Failure::failed(format!("cannot serve metrics: {error}"));
        listener.set_nonblocking(true).map_err(cannot)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let shared = Arc::new(Shared { page: Mutex::new(Box::new(page)), places: Mutex::default() });
        let work = move || {
            while !stopped.load(Ordering::Relaxed) {
                let ready = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&LOOK));
                match listener.accept() {
                    Ok((socket, _)) => let_in(socket, &shared, &stopped),
                    // Out of descriptors, or the like: others may give some back.
                    Err(_) if ready.is_ok_and(|count| count > 0) => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    Err(_) => {}
                }
            }
        };
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(work).map_err(cannot)?;
        Ok(Server { stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Gives a client its place and its thread, or closes the connection where there is no thread to be had.
fn let_in(socket: TcpStream, shared: &Arc<Shared>, stopped: &AtomicBool) {
    while !shared.make_room() {
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(PLACE_LOOK);
    }
    let now = Instant::now();
    let place = Arc::new(Place { socket, since: now });
    shared.places.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::downgrade(&place));
    let client = Client { shared: Arc::clone(shared), place, deadline: now + PATIENCE };
    // Without a thread the client is dropped, and its place with it.
    drop(std::thread::Builder::new().name("metrics client".into()).spawn(move || client.answer()));
}

struct Client {
    shared: Arc<Shared>,
    place: Arc<Place>,
    deadline: Instant,
}

impl Client {
    fn answer(self) {
        // Whoever asked may have gone, or be too slow.
        let _ = self.exchange();
    }

    fn exchange(&self) -> io::Result<()> {
        self.place.socket.set_nonblocking(false)?;
        let (status, body) = match target_of(&self.request()?) {
            Some(target) if target.split('?').next() == Some("/metrics") => {
                let page = self.shared.page.lock().unwrap_or_else(PoisonError::into_inner);
                // Whoever has waited too long for it gets none.
                self.left()?;
                ("200 OK", page())
            }
            Some(_) => ("404 Not Found", "see /metrics\n".to_string()),
            None => ("400 Bad Request", "GET /metrics\n".to_string()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        self.send(head.as_bytes())?;
        self.send(body.as_bytes())?;
        self.place.socket.shutdown(Shutdown::Write)
    }

    /// Up to the empty line.
    fn request(&self) -> io::Result<Vec<u8>> {
        let mut request = Vec::new();
        while !request.windows(4).any(|four| four == b"\r\n\r\n") {
            if request.len() >= REQUEST_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            self.place.socket.set_read_timeout(Some(self.left()?))?;
            let mut bytes = [0; 1024];
            match (&self.place.socket).read(&mut bytes)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => request.extend_from_slice(&bytes[..count]),
            }
        }
        Ok(request)
    }

    fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.place.socket.set_write_timeout(Some(self.left()?))?;
            match (&self.place.socket).write(bytes)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    /// Time that is left; an error when there is none.
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// What a GET asks for.
fn target_of(request: &[u8]) -> Option<&str> {
    let line = request.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("GET"), Some(target), Some("HTTP/1.0" | "HTTP/1.1")) => Some(target),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::mpsc::channel;

    use super::*;

    fn serve(page: impl Fn() -> String + Send + 'static) -> (Server, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        (Server::start(listener, page).unwrap_or_else(|_| panic!("no server")), at)
    }

    fn ask(at: SocketAddr, request: &str) -> String {
        let mut socket = TcpStream::connect(at).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn answers() {
        let (_server, at) = serve(|| "a 1\n".to_string());
        let check = |request: &str, begin: &str, end: &str| {
            let answer = ask(at, request);
            assert!(answer.starts_with(begin) && answer.ends_with(end), "{request}: {answer}");
        };
        check("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\n", "\r\n\r\na 1\n");
        check("GET /metrics?x HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n", "\r\n\r\na 1\n");
        check("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404", "see /metrics\n");
        check("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400", "\n");
        check("\0\u{ff}\r\n\r\n", "HTTP/1.1 400", "\n");
        assert_eq!(ask(at, &"x".repeat(REQUEST_BYTES_MAX + 1)), "");
    }

    /// One who asks and does not read, and one who does not ask, hold up neither others nor the end.
    #[test]
    fn slow_clients_wait_alone() {
        // More than sockets hold.
        let (server, at) = serve(|| "x".repeat(64 << 20));
        let mut deaf = TcpStream::connect(at).unwrap();
        deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let _silent = TcpStream::connect(at).unwrap();
        assert!(ask(at, "GET / HTTP/1.1\r\n\r\n").ends_with("see /metrics\n"));
        // Its answer has begun.
        assert!(deaf.peek(&mut [0]).is_ok_and(|count| count > 0));
        let (done, wait) = channel();
        std::thread::spawn(move || {
            drop(server);
            done.send(()).unwrap();
        });
        wait.recv_timeout(Duration::from_secs(120)).expect("the end waits for nobody");
        // It was there all the while.
        deaf.set_nonblocking(true).unwrap();
        assert!(deaf.read(&mut [0; 16]).is_ok_and(|count| count > 0));
    }

    /// Whoever is cut off has its place until its thread is through, which may wait for a page that is slow.
    #[test]
    fn a_place_is_free_when_its_thread_is_through() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let shared = Shared { page: Mutex::new(Box::new(String::new)), places: Mutex::default() };
        let long_ago = Instant::now().checked_sub(PLACE_LEAST).unwrap();
        let place = |_| {
            assert!(shared.make_room());
            let place = Arc::new(Place { socket: TcpStream::connect(at).unwrap(), since: long_ago });
            shared.places.lock().unwrap().push_back(Arc::downgrade(&place));
            place
        };
        let mut threads: Vec<Arc<Place>> = (0..CLIENTS_MAX).map(place).collect();
        for _ in 0..3 {
            assert!(!shared.make_room() && shared.places.lock().unwrap().len() == CLIENTS_MAX);
        }
        // One was cut off for another, and no more.
        let cut_off = threads.iter().map(|place| {
            place.socket.set_nonblocking(true).unwrap();
            (&place.socket).read(&mut [0]).is_ok_and(|count| count == 0)
        });
        assert_eq!(cut_off.filter(|cut_off| *cut_off).count(), 1);
        threads.remove(0);
        assert!(shared.make_room());
    }

    /// Many who ask and do not read, or do not ask, are cut off for one who does.
    #[test]
    fn slow_clients_make_room() {
        let (_server, at) = serve(|| "x".repeat(16 << 20));
        let deaf = |_| {
            let mut socket = TcpStream::connect(at).unwrap();
            socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            socket
        };
        let silent = |_| TcpStream::connect(at).unwrap();
        let slow: Vec<TcpStream> = (0..CLIENTS_MAX).map(deaf).chain((0..CLIENTS_MAX).map(silent)).collect();
        for _ in 0..3 {
            assert!(ask(at, "GET / HTTP/1.1\r\n\r\n").ends_with("see /metrics\n"));
        }
        // The last of them are there still: no more than had to were cut off.
        let open = slow.iter().filter(|socket| {
            socket.set_nonblocking(true).unwrap();
            matches!((&**socket).read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        });
        assert!(open.count() > 0);
    }
}
