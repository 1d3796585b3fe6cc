// The experiment's text in CodeMirror: TOML highlighting, completion of keys and values from the schema, and errors at their
// position. It lives in a shadow root, where the page's policy allows its inline styles.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { bracketMatching, HighlightStyle, StreamLanguage, syntaxHighlighting } from '@codemirror/language';
import { toml } from '@codemirror/legacy-modes/mode/toml';
import { lintGutter, lintKeymap, setDiagnostics, type Diagnostic } from '@codemirror/lint';
import { EditorState } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { complete, describe } from './complete';
import type { Marked } from './context';
import type { Change } from './edit';
import type { Schemas } from './schema';

const COLOURS = HighlightStyle.define([
  { tag: tags.comment, color: 'var(--soft)', fontStyle: 'italic' },
  { tag: tags.propertyName, color: 'var(--accent)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--good)' },
  { tag: [tags.number, tags.bool, tags.atom], color: 'var(--c1)' },
  { tag: [tags.bracket, tags.atom], color: 'var(--c3)' },
]);

const LOOK = EditorView.theme({
  '&': { color: 'var(--ink)', backgroundColor: 'var(--panel)', fontSize: '13px', height: '100%' },
  '&.cm-focused': { outline: '2px solid var(--accent)' },
  '.cm-scroller': { fontFamily: 'ui-monospace, "DejaVu Sans Mono", monospace', lineHeight: '1.5' },
  '.cm-gutters': { backgroundColor: 'var(--bg)', color: 'var(--soft)', border: 'none' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '.cm-activeLine': { backgroundColor: 'var(--line-bg)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--select-bg)' },
  '.cm-tooltip': { backgroundColor: 'var(--panel)', color: 'var(--ink)', border: '1px solid var(--line)', maxWidth: '46ch' },
  '.cm-tooltip-hover': { padding: '4px 8px', whiteSpace: 'pre-wrap', fontFamily: 'system-ui, sans-serif' },
  '.cm-completionInfo': { whiteSpace: 'pre-wrap', fontFamily: 'system-ui, sans-serif' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--panel)' },
});

export interface Editor {
  change: (changes: Change[]) => void;
  /** Replaces the whole text; the user can undo that. */
  replace: (text: string) => void;
  mark: (problems: Marked[]) => void;
  /** Moves the cursor to a position. */
  goto: (at: number) => void;
  destroy: () => void;
}

/** Creates an editor in a box; `said` is called with each new text. */
export function makeEditor(box: HTMLElement, text: string, schemas: () => Schemas | undefined, said: (text: string) => void): Editor {
  const root = box.shadowRoot ?? box.attachShadow({ mode: 'open' });
  const state = EditorState.create({
    doc: text,
    extensions: [
      lineNumbers(),
      lintGutter(),
      history(),
      drawSelection(),
      bracketMatching(),
      closeBrackets(),
      highlightActiveLine(),
      StreamLanguage.define(toml),
      syntaxHighlighting(COLOURS),
      autocompletion({ override: [complete(schemas)], icons: false }),
      hoverTooltip((view, at) => describe(schemas(), view.state.doc.toString(), at)),
      // Tab moves to the page's next control.
      keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap]),
      EditorView.lineWrapping,
      EditorView.contentAttributes.of({ 'aria-label': 'text of the experiment', tabindex: '0' }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) said(update.state.doc.toString());
      }),
      LOOK,
    ],
  });
  const view = new EditorView({ state, parent: root, root });
  return {
    change: (changes) => view.dispatch({ changes, userEvent: 'input.form' }),
    replace: (fresh) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: fresh }, userEvent: 'input.take' }),
    mark: (problems) => {
      const end = view.state.doc.length;
      const found = problems.map(({ from, to, message }): Diagnostic => {
        const start = Math.min(from, end);
        return { from: start, to: Math.min(Math.max(to, start), end), severity: 'error', message };
      });
      view.dispatch(setDiagnostics(view.state, found));
    },
    goto: (at) => {
      const anchor = Math.min(at, view.state.doc.length);
      view.dispatch({ selection: { anchor }, effects: EditorView.scrollIntoView(anchor, { y: 'center' }) });
      view.focus();
    },
    destroy: () => view.destroy(),
  };
}
