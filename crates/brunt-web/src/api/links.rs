//! Links that let a browser open a report in a tab or a frame, where no header can be sent: each has a key that nobody can
//! guess, and works for a while.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::token::unguessable;

/// So long a link works.
const LIFETIME: Duration = Duration::from_secs(600);
/// More at a time are not kept: the oldest goes.
const LINKS_MAX: usize = 64;

/// What a link shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkedPage {
    /// The report of a result.
    Report(String),
    /// Two results, the earlier one first.
    Comparison(String, String),
}

/// All links that work.
#[derive(Default)]
pub struct PageLinks(Mutex<VecDeque<PageLink>>);

struct PageLink {
    key: String,
    made: Instant,
    page: LinkedPage,
}

impl PageLinks {
    /// A new link; its key.
    ///
    /// # Errors
    /// The system has no random numbers.
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

    /// What this key shows, if it works.
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
    fn a_link_works_for_a_while() {
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
