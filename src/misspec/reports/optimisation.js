
// Draws the figures of one optimisation, one after the other. All names come escaped.
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const section = (id, figure) => {
    const place = document.getElementById(id);
    place.closest("section").hidden = !figure;
    return figure ? draw(place, figure) : null;
  };
  await section("best", data.figures.best);
  document.getElementById("slices").hidden = !data.slices.length;
  lay(data.slices, document.getElementById("cards"));
  for (const slice of data.slices) await draw(slice.place, slice.figure);
  await section("importance", data.figures.importance);
  if (!narrow()) await section("parallel", data.figures.parallel); // on a phone its axes would lie on each other
  else document.getElementById("parallel").closest("section").hidden = true;
  await section("model", data.figures.model);
  document.body.dataset.drawn = "1";
})();
