// How a figure is drawn, the same on every page: on a desk and on a phone.
"use strict";
const narrow = () => window.innerWidth < 640;

function draw(place, figure) {
  const layout = structuredClone(figure.layout);
  const shown = figure.data.filter((trace) => trace.showlegend !== false).length;
  if (layout.showlegend) {
    // on a phone the legend is a list below the figure, on a desk a column beside it
    const base = layout.height || 420;
    if (narrow()) {
      layout.legend = { ...layout.legend, orientation: "h", x: 0, y: -0.28, yanchor: "top", font: { size: 11 } };
      layout.height = base - 60 + 19 * shown;
      layout.margin = { ...layout.margin, b: 65 + 19 * shown };
    } else {
      layout.height = base;
    }
  }
  if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // a finger scrolls the page
  return Plotly.newPlot(place, figure.data, layout, {
    responsive: true, displaylogo: false, displayModeBar: narrow() ? false : undefined,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  });
}

// A place for each figure, below its name; all of them before any is drawn, since they share the width.
function lay(cards, place) {
  for (const card of cards) {
    const box = document.createElement("div");
    box.className = "card";
    const title = document.createElement("h3");
    title.textContent = card.name;
    card.place = document.createElement("div");
    box.append(title, card.place);
    place.append(box);
  }
}
