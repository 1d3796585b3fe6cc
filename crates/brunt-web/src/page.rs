//! The page's files, as `web/` makes them: built with `npm ci && npm run build` there, committed here, and compared with
//! their source by CI. Building Brunt needs no Node.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// Where it is asked for.
    pub path: &'static str,
    /// Its type.
    pub content_type: &'static str,
    /// Its bytes.
    pub bytes: &'static [u8],
}

/// The editor of experiments: loaded when it is opened, and so not part of the first load.
pub const COMPOSE: &str = "/compose.js";

/// All of them.
pub static FILES: &[PageFile] = &[
    PageFile {
        path: "/",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("../assets/index.html"),
    },
    PageFile {
        path: "/app.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/app.js"),
    },
    PageFile {
        path: COMPOSE,
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/compose.js"),
    },
    PageFile {
        path: "/app.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../assets/app.css"),
    },
    PageFile {
        path: "/licences.txt",
        content_type: "text/plain; charset=utf-8",
        bytes: include_bytes!("../assets/licences.txt"),
    },
];

/// Headers of each: it loads nothing from elsewhere, runs no script but its own, and is shown in no other page. Reports are
/// shown in frames of it.
pub const HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
];

/// The file that is asked for by this path.
pub fn find(path: &str) -> Option<&'static PageFile> {
    FILES.iter().find(|file| file.path == path)
}
