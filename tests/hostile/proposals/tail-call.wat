;; attack: Uses tail calls, which no policy needs.
;; expect: load -> invalid
;; proposal: TAIL_CALL

;; in core:
(func $f (return_call $f))
