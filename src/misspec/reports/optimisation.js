
// Draws the figures of one optimisation, one after the other. All names come escaped.
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const section = (id, figure) => {
    const place = document.getElementById(id);
    place.closest("section").hidden = !figure;
    return figure ? draw(place, figure) : null;
  };
  await section("best", data.figures.best);
  const cards = document.getElementById("cards");
  document.getElementById("slices").hidden = !data.slices.length;
  for (const slice of data.slices) { // all of them before any is drawn: they share the width
    const box = document.createElement("div");
    box.className = "card";
    const title = document.createElement("h3");
    title.textContent = slice.name;
    slice.place = document.createElement("div");
    box.append(title, slice.place);
    cards.append(box);
  }
  for (const slice of data.slices) await draw(slice.place, slice.figure);
  await section("importance", data.figures.importance);
  if (!narrow()) await section("parallel", data.figures.parallel); // on a phone its axes would lie on each other
  else document.getElementById("parallel").closest("section").hidden = true;
  await section("model", data.figures.model);
  document.body.dataset.drawn = "1";
})();
