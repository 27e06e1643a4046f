;; attack: A bit of the magic number is flipped.
;; expect: load -> not-wasm
;; bytes: flip 0
