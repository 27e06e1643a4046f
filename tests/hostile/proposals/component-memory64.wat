;; attack: Uses 64-bit memories between components, which no policy needs.
;; expect: load -> structure (memories)
;; proposal: CM64

;; in component:
(core module $wide
  (memory (export "memory") i64 1)
  (func (export "f") (param i64 i64))
  (func (export "realloc") (param i64 i64 i64 i64) (result i64) unreachable))
(core instance $wide (instantiate $wide))
(func (param "text" string) (canon lift (core func $wide "f") (memory (core memory $wide "memory"))
  (realloc (core func $wide "realloc"))))
