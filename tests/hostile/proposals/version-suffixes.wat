;; attack: Uses names whose version is in two parts, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_CANON_NAMES

;; in component:
(import "pointsman:policy/other@0.1" (version-suffix ".0") (instance))
