//! Links that let a browser open a report in a tab or a frame, where it can't send a header. Each link has an
//! unguessable key and expires.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::token::unguessable;

/// How long a link works.
const LIFETIME: Duration = Duration::from_secs(600);
/// Maximum number of links; if there are more, the oldest is dropped.
const LINKS_MAX: usize = 64;

/// The page that a link opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkedPage {
    /// The report of a result.
    Report(String),
    /// Results to compare with the first one.
    Comparison(Vec<String>),
    /// The history of the results with these ids.
    History(Vec<String>),
}

/// All valid links.
#[derive(Default)]
pub struct PageLinks(Mutex<VecDeque<PageLink>>);

struct PageLink {
    key: String,
    made: Instant,
    page: LinkedPage,
}

impl PageLinks {
    /// Creates a link and returns its key.
    ///
    /// # Errors
    /// The system can't provide random numbers.
    pub fn make(&self, page: LinkedPage) -> Result<String, getrandom::Error> {
        let key = unguessable()?;
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if links.len() == LINKS_MAX {
            links.pop_front();
        }
        links.push_back(PageLink {
            key: key.clone(),
            made: Instant::now(),
            page,
        });
        Ok(key)
    }

    /// The page for this key, if its link is still valid.
    pub fn find(&self, key: &str) -> Option<LinkedPage> {
        self.find_at(key, Instant::now())
    }

    fn find_at(&self, key: &str, now: Instant) -> Option<LinkedPage> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| now.saturating_duration_since(link.made) < LIFETIME);
        links
            .iter()
            .find(|link| link.key == key)
            .map(|link| link.page.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_its_page_until_it_expires() {
        let links = PageLinks::default();
        let page = LinkedPage::Report("a".into());
        let key = links.make(page.clone()).expect("random numbers");
        assert_eq!(links.find(&key), Some(page.clone()));
        assert_eq!(links.find(&key[1..]), None);
        assert_eq!(links.find_at(&key, Instant::now() + LIFETIME), None);
        assert_eq!(links.find(&key), None, "it is gone");
        let first = links.make(page.clone()).expect("random numbers");
        for _ in 0..LINKS_MAX {
            links.make(page.clone()).expect("random numbers");
        }
        assert_eq!(links.find(&first), None);
        assert_eq!(links.0.lock().expect("whole").len(), LINKS_MAX);
    }
}
