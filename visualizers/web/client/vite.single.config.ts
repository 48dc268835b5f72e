/** Builds the pages once more as one file, into which the answers are put. */
import { renameSync } from "node:fs";
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";
import pages from "./vite.config";

const POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";

export default defineConfig({
  ...(pages as object),
  plugins: [
    {
      name: "a place for the answers",
      transformIndexHtml: (html) =>
        html
          .replace("<head>", `<head><meta http-equiv="Content-Security-Policy" content="${POLICY}" />`)
          .replace('<div id="app">', '<script type="application/json" id="answers">{}</script>\n    <div id="app">'),
    },
    viteSingleFile({ removeViteModuleLoader: true }),
    {
      name: "under another name",
      closeBundle: () => renameSync("../pages/single/index.html", "../pages/single.html"),
    },
  ],
  build: { outDir: "../pages/single", emptyOutDir: true, target: "es2022", license: false },
} as never);
