// Typesets formulas: one JSON request a line on stdin, one JSON answer a line on stdout.
// The version of katex.min.js beside this file is that of the style sheet in book/_assets/katex.
const katex = require("./katex.min.js");
const lines = require("readline").createInterface({ input: process.stdin });

lines.on("line", (line) => {
  const { latex, options } = JSON.parse(line);
  let answer;
  try {
    answer = { html: katex.renderToString(latex, options) };
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
