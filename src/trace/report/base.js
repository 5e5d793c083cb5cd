// The common part of the page. Text from the trace goes into the page through textContent alone, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);

const byId = (id) => document.getElementById(id);

// element("td", {className: "x"}, "text" or an element, ...)
function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function drawing(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const counted = (count) => Math.round(count).toLocaleString("en-US");

function percent(share) {
  const value = 100 * share;
  return (value > 0 && value < 0.1 ? "<0.1" : value.toFixed(1).replace(/\.0$/, "")) + "%";
}

function duration(nanoseconds) {
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]];
  for (const [unit, size] of units) {
    if (nanoseconds >= size) return +(nanoseconds / size).toPrecision(3) + " " + unit;
  }
  return Math.round(nanoseconds) + " ns";
}

// The box beside the pointer. `lines`: the first is the title.
function showTip(event, lines) {
  const tip = byId("tip");
  tip.replaceChildren(element("b", {}, lines[0]), ...lines.slice(1).map((line) => element("div", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
  tip.style.top = (event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18) + "px";
}

function hideTip() {
  byId("tip").hidden = true;
}
