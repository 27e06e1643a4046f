;; attack: Enters its own component again by a function that it exports.
;; expect: score -> trap

;; in component:
(core module $table (table (export "table") 1 1 funcref))
(core instance $table (instantiate $table))
(core module $inner
  (import "" "table" (table 1 1 funcref))
  (type $f (func))
  (func (export "enter") (call_indirect (type $f) (i32.const 0))))
(core instance $inner (instantiate $inner (with "" (instance $table))))
