// Before the library: it reads the screen's resolution through these two, and paper has a finer one.
var bruntRatio = { paper: 0, query: null };
{
  const native = Object.getOwnPropertyDescriptor(window, "devicePixelRatio");
  Object.defineProperty(window, "devicePixelRatio", {
    configurable: true,
    get: () => bruntRatio.paper || native.get.call(window),
  });
  const match = window.matchMedia.bind(window);
  window.matchMedia = query => {
    const list = match(query);
    if (query.includes("dppx")) bruntRatio.query = list;
    return list;
  };
}
