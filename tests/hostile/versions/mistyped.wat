;; attack: A stage of this version whose function takes nothing and answers a number.
;; expect: load -> function

;; in component:
(component $other
  (core module $m (func (export "f") (result i32) i32.const 0))
  (core instance $i (instantiate $m))
  (func (export "pick") (result u32) (canon lift (core func $i "f"))))
(instance $other (instantiate $other))

;; in exports:
(export "pointsman:policy/worker-picker@0.1.0" (instance $other))
