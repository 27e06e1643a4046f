;; attack: Uses function subtyping, which ends an engine that leaves it on but has no collector, which no policy needs.
;; expect: load -> invalid
;; proposal: GC

;; in core:
(type $a (sub (func)))
(type $b (sub $a (func)))
(func $f (type $b))
(elem declare func $f)
(func (result i32) (ref.test (ref $b) (ref.func $f)))
