;; attack: Enters its own component again while a call runs, by a function of its own that it imports from itself.
;; expect: score -> trap

;; in core:
(type $f (func))
(table $t (export "table") 1 funcref)
(func (export "enter"))

;; in score:
(call_indirect $t (type $f) (i32.const 0))
(call $list (local.get $numbers) (local.get $count))

;; in exports:
(func $enter (canon lift (core func $core "enter")))
(core func $again (canon lower (func $enter)))
(alias core export $core "table" (core table $table))
(core module $fill
  (import "" "table" (table 1 funcref))
  (import "" "again" (func $again))
  (elem (i32.const 0) func $again))
(core instance (instantiate $fill
  (with "" (instance (export "table" (table $table)) (export "again" (func $again))))))
