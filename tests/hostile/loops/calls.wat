;; attack: Calls a small function for ever, without a loop that does anything.
;; expect: score -> out-of-fuel

;; in core:
(func $nothing_much)

;; in score:
(loop $again (call $nothing_much) (br $again))
(unreachable)
