;; attack: Calls itself until there is no stack.
;; expect: score -> trap

;; in core:
(func $deep (call $deep))

;; in score:
(call $deep) (unreachable)
