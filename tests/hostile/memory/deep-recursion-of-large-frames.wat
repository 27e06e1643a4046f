;; attack: Calls itself with 200 live values a call, in the profile with the larger stack.
;; expect: score -> trap
;; limits: profile=engine

;; in core:
(func $deep (param i64) (result i64)
(local.get 0)
;; repeat 200: (i64.mul (local.get 0) (i64.const #))
(call $deep (local.get 0))
;; repeat 201: i64.add
)

;; in score:
(drop (call $deep (i64.const 1))) (unreachable)
