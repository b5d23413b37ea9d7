// SPDX-License-Identifier: Apache-2.0
// Searches the pages in the browser. The index is a script that Hugo writes, so it also works from files.
(function () {
  const input = document.getElementById('search');
  const list = document.getElementById('results');
  const root = document.body.dataset.root;
  const pages = (window.moultPages || []).map(function (p) {
    return Object.assign({ title: p.t.toLowerCase(), heads: p.h.toLowerCase(), text: p.c.toLowerCase() }, p);
  });

  // A word in the title counts most, then in a heading, then in the text. Every word must be there.
  function score(page, words) {
    let sum = 0;
    for (const word of words) {
      const n = (page.title.includes(word) ? 50 : 0) + (page.heads.includes(word) ? 10 : 0) + Math.min(5, page.text.split(word).length - 1);
      if (n === 0) return 0;
      sum += n;
    }
    return sum;
  }

  function excerpt(page, word) {
    const at = Math.max(0, page.text.indexOf(word) - 50);
    return (at > 0 ? '… ' : '') + page.c.slice(at, at + 140) + ' …';
  }

  input.addEventListener('input', function () {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    list.replaceChildren();
    list.hidden = words.length === 0;
    if (list.hidden) return;
    const found = pages.map(function (p) { return [score(p, words), p]; }).filter(function (x) { return x[0] > 0; });
    found.sort(function (a, b) { return b[0] - a[0]; });
    for (const [, page] of found.slice(0, 12)) {
      const link = document.createElement('a');
      const about = document.createElement('small');
      const item = document.createElement('li');
      link.href = root + page.u;
      link.textContent = page.t;
      about.textContent = excerpt(page, words[0]);
      link.append(about);
      item.append(link);
      list.append(item);
    }
    if (found.length === 0) list.textContent = 'Nothing found.';
  });
  document.addEventListener('click', function (e) { if (!list.contains(e.target) && e.target !== input) list.hidden = true; });
  document.addEventListener('keydown', function (e) {
    if (e.key === 'Escape') list.hidden = true;
    if (e.key === '/' && document.activeElement !== input) { e.preventDefault(); input.focus(); }
  });
})();
