// The view named by the address: `#/watch?run=3`. A link to a view is its address; the back button returns to the previous one.

export interface View {
  name: 'watch' | 'compose' | 'results' | 'compare' | 'history';
  /** The rest of the path: the id of a result, or those of several. */
  parts: string[];
  query: URLSearchParams;
  /** Whether the address names it; otherwise it is the default. */
  isNamed: boolean;
}

const NAMES: readonly string[] = ['watch', 'compose', 'results', 'compare', 'history'];

function read(hash: string): View {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [name = '', ...parts] = path.split('/').map(unescape);
  const isNamed = NAMES.includes(name);
  return { name: isNamed ? (name as View['name']) : 'watch', isNamed, parts, query: new URLSearchParams(query) };
}

function unescape(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

class Route {
  view = $state.raw<View>(read(location.hash));

  constructor() {
    addEventListener('hashchange', () => (this.view = read(location.hash)));
  }

  /** The address of the current view with another query. */
  with(key: string, value: string | null): string {
    const query = new URLSearchParams(this.view.query);
    if (value) query.set(key, value);
    else query.delete(key);
    const text = query.toString();
    return `${link(this.view.name, ...this.view.parts)}${text ? `?${text}` : ''}`;
  }

  /** Changes the query in place: the back button still leaves the view. */
  query(key: string, value: string | null): void {
    history.replaceState(null, '', this.with(key, value));
    this.view = read(location.hash);
  }
}

export const route = new Route();

/** The address of a view. */
export function link(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join('/')}`;
}

/** The address of a view of the results that contain these words. */
export function searched(name: View['name'], words: string): string {
  return words === '' ? link(name) : `${link(name)}?${new URLSearchParams({ search: words }).toString()}`;
}

export function go(...parts: string[]): void {
  location.hash = link(...parts);
}
