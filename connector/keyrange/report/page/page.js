// Draws the pictures of a report, and keeps them up to date where a server has newer ones.
// Texts of the page were escaped where it was made; nothing here makes HTML of data by itself.
(() => {
  "use strict";

  const data = JSON.parse(document.getElementById("data").textContent);
  let pictures = data.pictures;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)");
  // The view that somebody chose of a picture, by its key: the order may change.
  const chosen = {};
  // The figure that a picture shows, as it came.
  const shown = {};

  const COLOURS = new Set(
    ("color fillcolor bgcolor fgcolor bordercolor gridcolor linecolor zerolinecolor " +
      "tickcolor paper_bgcolor plot_bgcolor").split(" ")
  );
  const CONFIG = {
    responsive: true,
    displaylogo: false,
    // The page has buttons of its own, which a keyboard reaches.
    displayModeBar: false,
    doubleClick: "reset+autosize",
  };
  const LABEL_CHARACTERS = 16;
  const START_CHARACTERS = 24;

  // A figure names CSS variables in the place of colours.
  function coloured(value, styles, key) {
    if (typeof value === "string" && COLOURS.has(key) && value.startsWith("--")) {
      return styles.getPropertyValue(value).trim();
    }
    if (Array.isArray(value)) {
      const holds = value.length && typeof value[0] === "object" && !Array.isArray(value[0]);
      return holds ? value.map((each) => coloured(each, styles, key)) : value;
    }
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => [name, coloured(each, styles, name)])
    );
  }

  function viewOf(name) {
    const views = pictures[name].views;
    return views.find((each) => each.key === chosen[name]) || views[0];
  }

  function fitted(figure, name, key, width) {
    const styles = getComputedStyle(document.documentElement);
    const { data: traces, layout } = coloured(figure, styles, "");
    layout.uirevision = `${name} ${key}`;
    // A finger that scrolls the page must not be caught by a picture.
    if (coarse.matches) layout.dragmode = false;
    if (width < 560) {
      layout.font = { ...layout.font, size: 11 };
      if (layout.yaxis && layout.yaxis.type === "category") shorten(layout, traces);
    }
    return [traces, layout];
  }

  // Long names would leave no room for what they are names of. Their ends tell them apart; of a
  // sentence the start says most.
  function shorten({ yaxis: axis, meta }, traces) {
    const most = meta === "start" ? START_CHARACTERS : LABEL_CHARACTERS;
    const cut = (text) =>
      meta === "start" ? `${text.slice(0, most - 1)}…` : `${text.slice(0, 8)}…${text.slice(-7)}`;
    const names = [...new Set(traces.flatMap((each) => each.y))];
    axis.tickmode = "array";
    axis.tickvals = names;
    axis.ticktext = names.map((each) => (each.length <= most ? each : cut(each)));
  }

  async function draw(name) {
    const plot = document.getElementById(`${name}-plot`);
    const view = viewOf(name);
    try {
      const [traces, layout] = fitted(view.figure, name, view.key, plot.clientWidth);
      await window.Plotly.react(plot, traces, layout, CONFIG);
      shown[name] = view.figure;
    } catch (failure) {
      plot.textContent = `This picture could not be drawn: ${failure}. Its table is below.`;
    }
  }

  async function drawAll() {
    const began = performance.now();
    for (const name of Object.keys(pictures)) await draw(name);
    const root = document.documentElement;
    root.dataset.drawingMs = Math.round(performance.now() - began);
    root.dataset.drawnMs = Math.round(performance.now());
  }

  // Make an element like another one, leaving alone what is alike: focus, what is open and how far
  // something was scrolled stay as they are.
  function patch(old, now) {
    if (old.nodeName !== now.nodeName || old.id !== now.id) return old.replaceWith(now);
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== now.data) old.data = now.data;
      return undefined;
    }
    if (old.classList.contains("plot") || old.isEqualNode(now)) return undefined;
    for (const each of now.attributes) {
      if (old.getAttribute(each.name) !== each.value) old.setAttribute(each.name, each.value);
    }
    const [olds, nows] = [[...old.childNodes], [...now.childNodes]];
    olds.forEach((each, at) => (at < nows.length ? patch(each, nows[at]) : each.remove()));
    old.append(...nows.slice(olds.length));
    return undefined;
  }

  function parsed(html, like) {
    const made = like.cloneNode(false);
    made.innerHTML = html;
    return made;
  }

  // The sentence and the table of the chosen view; of a single view they are in the page.
  function describe(name) {
    if (pictures[name].views.length < 2) return;
    const view = viewOf(name);
    for (const [part, html] of [["summary", view.summary], ["table", view.table]]) {
      const element = document.getElementById(`${name}-${part}`);
      patch(element, parsed(html, element));
    }
    const choice = document.getElementById(`${name}-choice`);
    choice.value = String(pictures[name].views.indexOf(view));
  }

  const toNumber = (at) => (typeof at === "string" ? Date.parse(`${at.replace(" ", "T")}Z`) : +at);
  const toRange = (at, kind) =>
    kind === "date" ? new Date(at).toISOString().replace("T", " ").replace("Z", "") : at;

  // Ranges may be written with fewer digits than ISO 8601 has.
  function rangeOf(axis) {
    const whole = (at) => (/ \d\d$/.test(at) ? `${at}:00` : at);
    return axis.range.map((at) => toNumber(typeof at === "string" ? whole(at) : at));
  }

  const AXES = { left: ["xaxis"], right: ["xaxis"], up: ["yaxis"], down: ["yaxis"] };
  const STEPS = { left: -0.25, down: -0.25, right: 0.25, up: 0.25 };

  function zoom(name, how) {
    const plot = document.getElementById(`${name}-plot`);
    const view = viewOf(name);
    const both = view.figure.layout.meta === "xy" ? ["xaxis", "yaxis"] : ["xaxis"];
    const changes = {};
    for (const each of AXES[how] || both) {
      const axis = plot._fullLayout[each];
      const initial = view.figure.layout[each].range;
      if (how === "all" || (how === "reset" && !initial)) {
        changes[`${each}.autorange`] = view.figure.layout[each].autorange || true;
      } else if (how === "reset") {
        changes[`${each}.range`] = initial;
      } else {
        const [low, high] = rangeOf(axis);
        const span = high - low;
        const [before, behind] = { in: [0.25, -0.25], out: [-0.5, 0.5] }[how] ||
          [STEPS[how], STEPS[how]];
        const range = [low + before * span, high + behind * span];
        changes[`${each}.range`] = range.map((at) => toRange(at, axis.type));
      }
    }
    return window.Plotly.relayout(plot, changes);
  }

  function update(content) {
    const before = shown;
    pictures = content.pictures;
    for (const { name, html } of content.sections) {
      const section = document.getElementById(name);
      if (section) patch(section, parsed(html, section));
    }
    const at = document.getElementById("at");
    at.dateTime = content.at;
    at.textContent = `${content.at.slice(0, 10)} ${content.at.slice(11, 19)} UTC`;
    for (const name of Object.keys(pictures)) {
      describe(name);
      const drawn = document.getElementById(`${name}-plot`).classList.contains("js-plotly-plot");
      const same = JSON.stringify(before[name]) === JSON.stringify(viewOf(name).figure);
      if (!drawn || !same) draw(name);
    }
  }

  let version = data.version;
  let lost = "";

  async function refresh() {
    let stale = "";
    try {
      const answer = await fetch(`report.json?known=${encodeURIComponent(version)}`, {
        cache: "no-store",
      });
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      const content = await answer.json();
      lost = "";
      stale = content.stale;
      if (content.version !== version) update(content);
      version = content.version;
    } catch (failure) {
      lost = lost || `${new Date().toISOString().slice(0, 19).replace("T", " ")} UTC`;
      stale = `Not refreshed since ${lost}: the server of this page does not answer ` +
        `(${failure.message}). Shown is what was known before.`;
    }
    const told = document.getElementById("stale");
    if (told.textContent !== stale) told.textContent = stale;
    document.documentElement.dataset.refreshed = version;
    setTimeout(refresh, data.refresh_ms);
  }

  document.addEventListener("change", (event) => {
    const name = event.target.dataset.choice;
    if (!name) return;
    chosen[name] = pictures[name].views[Number(event.target.value)].key;
    describe(name);
    draw(name);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-zoom]");
    if (button) zoom(button.dataset.of, button.dataset.zoom);
  });
  dark.addEventListener("change", () => Object.keys(pictures).forEach(draw));

  for (const name of Object.keys(pictures)) chosen[name] = pictures[name].views[0].key;
  drawAll().then(() => {
    if (data.refresh_ms) refresh();
  });
})();
