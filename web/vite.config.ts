// The page is built into the crate that embeds it, under fixed names: what is committed there is compared with what this
// makes, byte for byte.
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
        // The editor, which is loaded when it is opened: the only part that is apart.
        chunkFileNames: 'compose.js',
      },
    },
  },
});
