// The page is built into the crate that embeds it, under fixed names: CI compares the committed files with this build's
// output, byte for byte.
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: '../crates/brunt-web/assets',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    rollupOptions: {
      output: {
        entryFileNames: 'app.js',
        assetFileNames: 'app.[ext]',
        // The editor, the only separate part: it is loaded when it is opened.
        chunkFileNames: 'compose.js',
      },
    },
  },
});
