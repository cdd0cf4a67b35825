"use strict";
const documents = [...document.querySelectorAll(".document")];
const lines = [...document.querySelectorAll("nav .line")];
const names = documents.map((each) => each.querySelector("summary").textContent.toLowerCase());
const tools = document.querySelector(".tools");
function filter() {
  const wanted = tools.querySelector("input").value.toLowerCase().split(/\s+/);
  let shown = 0;
  documents.forEach((each, at) => {
    const hidden = !wanted.every((word) => names[at].includes(word));
    each.hidden = hidden;
    lines[at].hidden = hidden;
    shown += !hidden;
  });
  document.querySelectorAll(".collection, nav details").forEach((each) => {
    each.hidden = !each.querySelector(".document:not([hidden]), .line:not([hidden])");
  });
  tools.querySelector("output").value = wanted.join("") ? `${shown} of ${documents.length}` : "";
}
function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  if (target?.matches("details")) target.open = true;
  target?.scrollIntoView();
}
if (tools) {
  tools.hidden = false;
  tools.addEventListener("input", filter);
  tools.addEventListener("click", (event) => {
    const open = event.target.value;
    if (open) documents.forEach((each) => { if (!each.hidden) each.open = open === "open"; });
  });
  addEventListener("hashchange", reveal);
  reveal();
}
