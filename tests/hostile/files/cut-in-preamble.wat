;; attack: The first four bytes of a good policy.
;; expect: load -> not-wasm
;; bytes: cut 0

;; in file:
(component)
