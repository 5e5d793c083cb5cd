// The flame graph: root on top, a frame as wide as its share of the misses, first touches among them. Only frames that
// can be seen are drawn.
const flame = (() => {
  const rowHeight = 21;
  const narrowest = 0.6;  // pixels
  const svg = byId("flame");
  let focus = data.flame;
  let wanted = "";

  // Parents, and depths, once.
  (function link(node, parent, depth) {
    node.parent = parent;
    node.depth = depth;
    for (const callee of node.c || []) link(callee, node, depth + 1);
    if (node.c) node.c.sort((a, b) => b.v - a.v);
  })(data.flame, null, 0);

  // Warm colours, the same for the same name.
  function colour(name) {
    let hash = 7;
    for (let i = 0; i < name.length; ++i) hash = (hash * 31 + name.charCodeAt(i)) % 10007;
    if (name.endsWith("(Python)")) return `hsl(${150 + hash % 40} 45% ${62 + hash % 9}%)`;
    if (name.startsWith("[")) return `hsl(215 14% ${68 + hash % 8}%)`;
    return `hsl(${12 + hash % 40} ${72 + hash % 16}% ${60 + hash % 10}%)`;
  }

  function isWanted(node) {
    if (wanted === "") return false;
    return node.n.toLowerCase().includes(wanted) || (node.p || []).some(([place]) => place.toLowerCase().includes(wanted));
  }

  // The width under nodes that match; a match within a match counts once.
  function matched(node) {
    if (isWanted(node)) return node.v;
    return (node.c || []).reduce((sum, callee) => sum + matched(callee), 0);
  }

  // The text that fits: the end of a name is what tells it apart least.
  function label(name, width) {
    const fits = Math.floor((width - 8) / 7.25);
    if (fits < 3) return "";
    return name.length <= fits ? name : name.slice(0, fits - 1) + "…";
  }

  function tipLines(node) {
    const lines = [node.n, `${counted(node.v)} misses, ${percent(node.v / (data.flame.v || 1))} of all`];
    for (const [place, misses] of node.p || []) lines.push(`${place} (${counted(misses)})`);
    return lines;
  }

  function drawNode(node, x, width, above) {
    const group = drawing("g", { tabindex: "-1" });
    group.classList.toggle("above", above);
    group.classList.toggle("found", isWanted(node));
    const y = node.depth * rowHeight;
    const box = { x: x.toFixed(2), y, width: Math.max(width, narrowest).toFixed(2), height: rowHeight - 1 };
    group.append(drawing("rect", { ...box, fill: colour(node.n) }));
    const text = label(node.n, width);
    if (text) group.append(drawing("text", { x: (x + 5).toFixed(2), y: y + 14 }, text));
    group.dataset.name = node.n;
    group.addEventListener("click", () => zoom(node));
    group.addEventListener("mousemove", (event) => showTip(event, tipLines(node)));
    group.addEventListener("mouseleave", hideTip);
    svg.append(group);
  }

  function draw() {
    const width = svg.clientWidth || 1000;
    let deepest = focus.depth;
    svg.replaceChildren();
    for (let node = focus.parent; node; node = node.parent) drawNode(node, 0, width, true);
    const scale = width / (focus.v || 1);
    const waiting = [[focus, 0]];
    while (waiting.length > 0) {
      const [node, x] = waiting.pop();
      drawNode(node, x, node.v * scale, false);
      deepest = Math.max(deepest, node.depth);
      let at = x;
      for (const callee of node.c || []) {
        if (callee.v * scale >= narrowest) waiting.push([callee, at]);
        at += callee.v * scale;
      }
    }
    svg.setAttribute("height", (deepest + 1) * rowHeight);
    svg.style.height = (deepest + 1) * rowHeight + "px";
    byId("reset").disabled = focus === data.flame && wanted === "";
    byId("matched").textContent = wanted === "" ? "" : `${percent(matched(focus) / (focus.v || 1))} of the width matches`;
  }

  function zoom(node) {
    focus = node;
    hideTip();
    draw();
  }

  function search(text) {
    wanted = text.trim().toLowerCase();
    draw();
  }

  function reset() {
    byId("search").value = "";
    wanted = "";
    zoom(data.flame);
  }

  byId("search").addEventListener("input", (event) => search(event.target.value));
  byId("reset").addEventListener("click", reset);
  addEventListener("resize", draw);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") zoom(focus.parent || focus);
  });
  return { draw, search };
})();
