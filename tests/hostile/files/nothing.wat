;; attack: No bytes at all.
;; expect: load -> not-wasm
;; bytes: cut 0
