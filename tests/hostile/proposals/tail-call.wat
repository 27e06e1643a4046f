;; attack: Uses tail calls, which no policy needs.
;; expect: load -> invalid

;; in core:
(func $f (return_call $f))
