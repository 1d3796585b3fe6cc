//! Loads a shared library on demand (a storage client when a URL needs it, libblkid before a device is overwritten) and
//! looks up its functions. It uses the C library's loader directly, which is linked anyway: four functions suffice.
//!
//! The rule: a library is never unloaded, because it may have threads that outlive its last handle.

use std::ffi::{CString, c_void};
use std::sync::OnceLock;

/// The C loader's message when it can't load a library.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoaderRefusal(String);

/// Why a library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LibraryLoadError {
    /// This build cannot load libraries.
    #[error(
        "this brunt is linked statically and cannot load {0}; use a dynamically linked build, or serve the image over NBD \
         (qemu-storage-daemon) and open that"
    )]
    Static(&'static str),
    /// The library is not installed, or one of its dependencies is missing.
    #[error("cannot load {file} ({why}); install it: apt-get install {package}")]
    Missing {
        /// The library's file.
        file: &'static str,
        /// The Debian package.
        package: &'static str,
        /// The loader's message.
        why: LoaderRefusal,
    },
    /// The library lacks a function.
    #[error("{file} has no {function}: {needs} or newer is needed")]
    Old {
        /// The library's file.
        file: &'static str,
        /// The missing function.
        function: &'static str,
        /// The oldest version that has the function.
        needs: &'static str,
    },
}

/// A library and the package that contains it.
#[derive(Clone, Copy, Debug)]
pub struct LibraryFile {
    /// The library's file name, including the ABI version.
    pub file: &'static str,
    /// The Debian package name.
    pub package: &'static str,
    /// The oldest version that has all required functions.
    pub needs: &'static str,
}

/// A loaded library.
#[derive(Debug)]
pub struct Loaded {
    file: LibraryFile,
    handle: *mut c_void,
}

impl Loaded {
    /// Loads the library, or reuses it if it is already loaded.
    ///
    /// # Errors
    /// The library isn't installed, or this build cannot load libraries.
    pub fn open(file: LibraryFile) -> Result<Loaded, LibraryLoadError> {
        if !loader::IS_THERE {
            return Err(LibraryLoadError::Static(file.file));
        }
        let name = CString::new(file.file).expect("file names have no NUL");
        match loader::open(&name) {
            Ok(handle) => Ok(Loaded { file, handle }),
            Err(why) => Err(LibraryLoadError::Missing {
                file: file.file,
                package: file.package,
                why,
            }),
        }
    }

    /// Looks up a function by name, and by symbol version where several functions share the name.
    ///
    /// # Errors
    /// The library doesn't have the function.
    ///
    /// # Safety
    /// `F` must be a pointer type to this function, as declared in the library's header.
    pub unsafe fn function<F: Copy>(
        &self,
        name: &'static str,
        version: Option<&str>,
    ) -> Result<F, LibraryLoadError> {
        const {
            assert!(
                size_of::<F>() == size_of::<*mut c_void>(),
                "a pointer to a function"
            )
        };
        let function = CString::new(name).expect("function names have no NUL");
        let version = version.map(|version| CString::new(version).expect("versions have no NUL"));
        let found = loader::find(self.handle, &function, version.as_deref());
        if found.is_null() {
            let LibraryFile { file, needs, .. } = self.file;
            return Err(LibraryLoadError::Old {
                file,
                function: name,
                needs,
            });
        }
        // SAFETY: both have the size of a pointer, and the caller guarantees that `F` is this function's type.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
    }
}

/// Returns the value in `place`, loading it first if necessary.
///
/// # Errors
/// `load` fails; the next call tries again.
pub fn once<T, E>(
    place: &'static OnceLock<T>,
    load: impl FnOnce() -> Result<T, E>,
) -> Result<&'static T, E> {
    match place.get() {
        Some(loaded) => Ok(loaded),
        None => load().map(|loaded| place.get_or_init(|| loaded)),
    }
}

/// Converts text to a C string for a library; URLs with a NUL are rejected earlier.
pub fn text(words: &str) -> CString {
    CString::new(words).expect("values from a URL have no NUL")
}

/// The loader, in programs linked dynamically with glibc.
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
mod loader {
    use std::ffi::{CStr, c_void};

    use super::LoaderRefusal;

    pub const IS_THERE: bool = true;

    pub fn open(file: &CStr) -> Result<*mut c_void, LoaderRefusal> {
        // SAFETY: the name is NUL-terminated. The library's initializers run as in any program that loads it.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if !handle.is_null() {
            return Ok(handle);
        }
        // SAFETY: the message belongs to this thread until its next call to the loader.
        let why = unsafe {
            let words = libc::dlerror();
            if words.is_null() {
                None
            } else {
                Some(CStr::from_ptr(words).to_string_lossy().into_owned())
            }
        };
        Err(LoaderRefusal(why.unwrap_or_else(|| {
            "unknown error of the dynamic loader".to_string()
        })))
    }

    pub fn find(handle: *mut c_void, name: &CStr, version: Option<&CStr>) -> *mut c_void {
        // SAFETY: the handle comes from `open` and is never closed, and the names are NUL-terminated.
        unsafe {
            match version {
                Some(version) => libc::dlvsym(handle, name.as_ptr(), version.as_ptr()),
                None => libc::dlsym(handle, name.as_ptr()),
            }
        }
    }
}

/// No loader: static programs don't have one, and other C libraries have no symbol versions.
#[cfg(not(all(target_env = "gnu", not(target_feature = "crt-static"))))]
mod loader {
    use std::ffi::{CStr, c_void};

    use super::LoaderRefusal;

    pub const IS_THERE: bool = false;

    pub fn open(_: &CStr) -> Result<*mut c_void, LoaderRefusal> {
        unreachable!("static builds return an error before this point")
    }

    pub fn find(_: *mut c_void, _: &CStr, _: Option<&CStr>) -> *mut c_void {
        std::ptr::null_mut()
    }
}

/// Declares a struct with a library's functions, typed as in its header, and the code that looks them up.
#[macro_export]
macro_rules! library_functions {
    ($(#[$about:meta])* $table:ident, $version:expr, {
        $(fn $function:ident($($argument:ty),* $(,)?) $(-> $answer:ty)?;)*
    }) => {
        $(#[$about])*
        struct $table {
            $($function: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl $table {
            fn find(library: &$crate::library::Loaded) -> Result<$table, $crate::library::LibraryLoadError> {
                let version = $version;
                Ok($table {
                    $($function: {
                        let name = stringify!($function);
                        // SAFETY: the type matches the library's header.
                        unsafe { library.function(name, version)? }
                    },)*
                })
            }
        }
    };
}
pub use crate::library_functions as functions;

#[cfg(test)]
mod tests {
    use super::*;

    const C: LibraryFile = LibraryFile {
        file: "libc.so.6",
        package: "libc6",
        needs: "glibc 1",
    };

    functions! {
        /// Functions that every C library has.
        Present, None, {
            fn abs(i32) -> i32;
            fn labs(i64) -> i64;
        }
    }

    #[test]
    fn a_missing_function_is_named_with_the_version_needed() {
        let library = Loaded::open(C).unwrap();
        let found = Present::find(&library).unwrap();
        // SAFETY: both functions take and return plain integers.
        assert_eq!(unsafe { ((found.abs)(-7), (found.labs)(-8)) }, (7, 8));
        type Nothing = unsafe extern "C" fn();
        // SAFETY: looked up but never called.
        let old = unsafe { library.function::<Nothing>("brunt_has_no_such_function", None) };
        let old = old.unwrap_err().to_string();
        assert_eq!(
            old,
            "libc.so.6 has no brunt_has_no_such_function: glibc 1 or newer is needed"
        );
        // SAFETY: looked up but never called.
        let version = unsafe { library.function::<Nothing>("abs", Some("GLIBC_99")) };
        assert!(matches!(
            version,
            Err(LibraryLoadError::Old {
                function: "abs",
                ..
            })
        ));
    }

    #[test]
    fn a_missing_library_is_named_with_its_package() {
        let file = LibraryFile {
            file: "libbrunt-nowhere.so.1",
            package: "nowhere1",
            needs: "",
        };
        let error = Loaded::open(file).expect_err("no such library").to_string();
        assert!(
            error.starts_with("cannot load libbrunt-nowhere.so.1 ("),
            "{error}"
        );
        assert!(
            error.ends_with("install it: apt-get install nowhere1"),
            "{error}"
        );
    }
}
