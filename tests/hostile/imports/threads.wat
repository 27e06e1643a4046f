;; attack: Imports new threads.
;; expect: load -> imports

;; in component:
(import "wasi:thread/spawn@0.1.0" (instance (export "spawn" (func (param "start" u32)))))
