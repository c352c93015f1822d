// Draws the figures of the chosen problem and ε, and moves the bands through the rounds. All names come escaped.
"use strict";
(async () => {
  const find = (id) => document.getElementById(id);
  if (!window.DecompressionStream) {
    find("old").hidden = false;
    return;
  }

  // what is large is kept as base64 of gzip
  async function inflated(id) {
    const bytes = Uint8Array.from(atob(find(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  const read = async (id) => JSON.parse(await inflated(id));

  const library = document.createElement("script");
  library.textContent = await inflated("plotly");
  document.head.append(library);
  const index = await read("index");
  const parsed = new Map(); // group number → its figures
  let current = null;
  let wanted = null; // the group that was chosen last
  let timer = null;

  // {dtype, bdata, shape: "rows, columns"} → one typed array per row
  function rows(spec) {
    const bytes = Uint8Array.from(atob(spec.bdata), (c) => c.charCodeAt(0));
    const all = new Float32Array(bytes.buffer);
    const [count, width] = spec.shape.split(",").map(Number);
    return Array.from({ length: count }, (_, i) => all.subarray(i * width, (i + 1) * width));
  }

  async function group(number) {
    if (!parsed.has(number)) {
      const found = await read(`group-${number}`);
      for (const card of found.cards) for (const frame of card.frames) frame.values = frame.packed.map(rows);
      parsed.set(number, found);
    }
    return parsed.get(number);
  }

  const hiddenLines = () =>
    new Set((find("regret").data || []).filter((t) => t.visible === "legendonly").map((t) => t.legendgroup));

  function hideLines(groups) {
    const traces = find("regret").data.map((t, i) => (groups.has(t.legendgroup) && t.visible !== false ? i : -1));
    const chosen = traces.filter((i) => i >= 0);
    if (chosen.length) Plotly.restyle("regret", { visible: "legendonly" }, chosen);
  }

  function section(name, figure) {
    const place = find(name);
    place.closest("section").hidden = !figure;
    Plotly.purge(place);
    return figure ? draw(place, figure) : null;
  }

  async function show(number) {
    wanted = number;
    const mine = await group(number);
    if (wanted !== number) return; // another one was chosen meanwhile
    current = mine;
    find("table").innerHTML = mine.table; // made and escaped by the report
    find("keys").innerHTML = mine.keys;
    press("scale", false);
    press("bounds", false);
    find("about-bounds").hidden = true;
    const hidden = hiddenLines(); // what was hidden stays so, and the slider where it is
    const round = Number(find("slider").value) < Number(find("slider").max) ? Number(find("slider").value) : Infinity;
    await section("regret", mine.figures.regret);
    if (current !== mine) return;
    hideLines(hidden);
    find("bounds").hidden = !mine.bounds.length;
    find("cards").replaceChildren();
    find("bands").hidden = !mine.cards.length;
    lay(mine.cards, find("cards"));
    if (mine.cards.length) {
      const slider = find("slider");
      slider.max = mine.rounds.length - 1;
      slider.value = Math.min(round, mine.rounds.length - 1);
    }
    for (const card of mine.cards) {
      if (current !== mine) return;
      await draw(card.place, card.figure);
    }
    if (current !== mine) return;
    if (mine.cards.length) move();
    for (const name of ["share", "epsilon", "active", "bases", "cells", "coverage"]) {
      if (current !== mine) return;
      await section(name, mine.figures[name]);
    }
    document.body.dataset.drawn = String(number);
  }

  function move() {
    const at = Number(find("slider").value);
    find("round").textContent = `round ${current.rounds[at].toLocaleString("en")}`;
    for (const card of current.cards) {
      if (!card.place || !card.place.data) continue; // not drawn yet
      for (const frame of card.frames) {
        const values = frame.values.map((all) => (frame.shape ? reshape(all[at], frame.shape) : all[at]));
        Plotly.restyle(card.place, { [frame.attribute]: values }, frame.traces);
      }
    }
  }

  // a heat map takes rows
  const reshape = (flat, [count, width]) =>
    Array.from({ length: count }, (_, i) => flat.subarray(i * width, (i + 1) * width));

  const press = (id, on) => find(id).setAttribute("aria-pressed", String(on));
  const pressed = (id) => find(id).getAttribute("aria-pressed") === "true";

  function play() {
    const slider = find("slider");
    if (timer) return stop();
    if (Number(slider.value) === Number(slider.max)) slider.value = 0;
    find("play").textContent = "❚❚ pause";
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      move();
      if (Number(slider.value) >= Number(slider.max)) stop();
    }, 350);
    return move();
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    find("play").textContent = "▶ play";
  }

  function epsilons(keep) {
    const choice = find("choice");
    const problem = index[Number(find("problem").value)];
    choice.replaceChildren(...problem.epsilons.map(([label, number]) => new Option(label, number)));
    if (keep !== undefined) choice.value = keep;
    stop();
    show(Number(choice.value));
  }

  if (find("contest")) draw(find("contest"), await read("contest-data")); // the first part of the demo's page
  find("problem").replaceChildren(...index.map((problem, i) => new Option(problem.name, i)));
  find("problem").addEventListener("change", () => epsilons());
  find("choice").addEventListener("change", () => { stop(); show(Number(find("choice").value)); });
  find("slider").addEventListener("input", move);
  find("play").addEventListener("click", play);
  find("scale").addEventListener("click", () => {
    press("scale", !pressed("scale"));
    const type = pressed("scale") ? "log" : "linear";
    Plotly.relayout("regret", { "xaxis.type": type, "yaxis.type": type, "xaxis.autorange": true, "yaxis.autorange": true });
  });
  find("bounds").addEventListener("click", () => {
    press("bounds", !pressed("bounds"));
    find("about-bounds").hidden = !pressed("bounds");
    Plotly.restyle("regret", { visible: pressed("bounds") }, current.bounds);
    if (pressed("bounds") && !pressed("scale")) find("scale").click(); // a bound would flatten everything else
  });
  const worst = index[0].epsilons.reduce((a, b) => (b[2] > a[2] ? b : a));
  epsilons(worst[1]); // the most misspecified first
})();
