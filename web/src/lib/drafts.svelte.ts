// The experiment text being composed. It is kept only while the page is open, in all views, because it may contain
// passwords.

class Drafts {
  text = $state('');
  /** The text as loaded from an example, a result or a file: the difference would be lost. */
  taken = $state('');

  take(text: string): void {
    this.text = text;
    this.taken = text;
  }
}

export const drafts = new Drafts();
