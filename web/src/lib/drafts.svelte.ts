// The text that is being composed. It is kept while the page is open, whichever view is looked at, and nowhere else: it may
// hold passwords.

class Drafts {
  text = $state('');
  /** The text as it was taken from an example, a result or a file: what would be lost is what differs. */
  taken = $state('');

  take(text: string): void {
    this.text = text;
    this.taken = text;
  }
}

export const drafts = new Drafts();
