;; attack: `pick` never returns.
;; expect: pick -> out-of-fuel

;; in pick:
(loop $again (br $again)) (unreachable)
