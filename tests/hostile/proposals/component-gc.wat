;; attack: Uses garbage-collected types between components, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_GC

;; in component:
(core module $collected (func (export "f")))
(core instance $collected (instantiate $collected))
(func (canon lift (core func $collected "f") gc))
