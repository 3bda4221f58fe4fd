// Sortable tables: a button in each heading, ascending at the first click and descending at the second. Rows stay in
// their group (tbody), with the group's heading first. Cells without a figure ("–") come last in both orders.
function makeSortable(place) {
  for (const table of place.querySelectorAll("table.sortable")) makeTableSortable(table);
}
function makeTableSortable(table) {
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.setAttribute("aria-sort", other === heading ? (down ? "descending" : "ascending") : "none");
      for (const body of table.tBodies) sortRows(body, column, down ? -1 : 1);
    });
  });
}

makeSortable(document);

function sortRows(body, column, direction) {
  const rows = [...body.rows].filter(row => row.cells.length > column && !row.querySelector("th.group"));
  const keyed = rows.map(row => [sortKey(row.cells[column]), row]);
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return direction * (a - b);
    return direction * String(a).localeCompare(String(b), "en", { numeric: true });
  });
  body.append(...keyed.map(([, row]) => row));
}

// The number in a cell (data-value, or text such as 16,000); null if the cell has none.
function sortKey(cell) {
  const text = (cell.dataset.value ?? cell.textContent).trim();
  if (text === "" || text === "–") return null;
  const number = Number(text.replaceAll(",", ""));
  return Number.isNaN(number) ? text : number;
}
