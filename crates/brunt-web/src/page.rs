//! The page's files, built from `web/` with `npm ci && npm run build`, committed here, and compared with their source
//! by CI. Building Brunt doesn't need Node.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// URL path of the file.
    pub path: &'static str,
    /// Content type of the file.
    pub content_type: &'static str,
    /// Contents of the file.
    pub bytes: &'static [u8],
}

/// The experiment editor. It is loaded only when it is opened, so it isn't part of the first load.
pub const COMPOSE: &str = "/compose.js";

/// All files.
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

/// Headers of each file: the page loads nothing from elsewhere, runs only its own scripts, and can't be framed by
/// another page. Reports are shown in frames within the page.
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

/// The file at this path.
pub fn find(path: &str) -> Option<&'static PageFile> {
    FILES.iter().find(|file| file.path == path)
}
