"""Administrative regions that flights, trains and city weather know: real Chinese cities with their adcode, province and position.

`resolve` turns a name as people write it (English, Chinese, with or without 市, with a province, or the adcode) into regions; a name
that several regions share (Suzhou, Fuzhou, Taizhou, Yichun, 朝阳) gives them all, and the caller says so. Positions are rounded to
0.1 degree and serve travel times only. The synthetic city itself, Lanchuan, is one of them, with an adcode that no real region has.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import asin, cos, radians, sin, sqrt

from synth.worlds.city.map.place_names import CITY_EN, CITY_ZH


@dataclass(frozen=True, slots=True)
class Region:
    key: str
    adcode: str
    en: str
    zh: str
    province_en: str
    province_zh: str
    lat: float
    lon: float
    is_served: bool = True
    """Whether it has an airport and a railway station."""

    def km_to(self, other: Region) -> float:
        """Great-circle distance, in kilometres."""
        a, b = radians(self.lat), radians(other.lat)
        half = sin((b - a) / 2) ** 2 + cos(a) * cos(b) * sin(radians(other.lon - self.lon) / 2) ** 2
        return 12742.0 * asin(sqrt(half))


_ROWS: tuple[tuple[str, str, str, str, str, float, float], ...] = (
    ("330900", CITY_EN, CITY_ZH, "Zhejiang", "浙江", 30.2, 120.2),
    ("110000", "Beijing", "北京", "Beijing", "北京", 39.9, 116.4),
    ("310000", "Shanghai", "上海", "Shanghai", "上海", 31.2, 121.5),
    ("440100", "Guangzhou", "广州", "Guangdong", "广东", 23.1, 113.3),
    ("440300", "Shenzhen", "深圳", "Guangdong", "广东", 22.5, 114.1),
    ("510100", "Chengdu", "成都", "Sichuan", "四川", 30.7, 104.1),
    ("500000", "Chongqing", "重庆", "Chongqing", "重庆", 29.6, 106.6),
    ("320100", "Nanjing", "南京", "Jiangsu", "江苏", 32.1, 118.8),
    ("420100", "Wuhan", "武汉", "Hubei", "湖北", 30.6, 114.3),
    ("610100", "Xi'an", "西安", "Shaanxi", "陕西", 34.3, 108.9),
    ("120000", "Tianjin", "天津", "Tianjin", "天津", 39.1, 117.2),
    ("430100", "Changsha", "长沙", "Hunan", "湖南", 28.2, 113.0),
    ("410100", "Zhengzhou", "郑州", "Henan", "河南", 34.7, 113.6),
    ("370200", "Qingdao", "青岛", "Shandong", "山东", 36.1, 120.4),
    ("210200", "Dalian", "大连", "Liaoning", "辽宁", 38.9, 121.6),
    ("210100", "Shenyang", "沈阳", "Liaoning", "辽宁", 41.8, 123.4),
    ("230100", "Harbin", "哈尔滨", "Heilongjiang", "黑龙江", 45.8, 126.6),
    ("220100", "Changchun", "长春", "Jilin", "吉林", 43.9, 125.3),
    ("370100", "Jinan", "济南", "Shandong", "山东", 36.7, 117.0),
    ("340100", "Hefei", "合肥", "Anhui", "安徽", 31.8, 117.3),
    ("360100", "Nanchang", "南昌", "Jiangxi", "江西", 28.7, 115.9),
    ("350200", "Xiamen", "厦门", "Fujian", "福建", 24.5, 118.1),
    ("530100", "Kunming", "昆明", "Yunnan", "云南", 25.0, 102.7),
    ("520100", "Guiyang", "贵阳", "Guizhou", "贵州", 26.6, 106.7),
    ("450100", "Nanning", "南宁", "Guangxi", "广西", 22.8, 108.3),
    ("460100", "Haikou", "海口", "Hainan", "海南", 20.0, 110.3),
    ("460200", "Sanya", "三亚", "Hainan", "海南", 18.3, 109.5),
    ("620100", "Lanzhou", "兰州", "Gansu", "甘肃", 36.1, 103.8),
    ("630100", "Xining", "西宁", "Qinghai", "青海", 36.6, 101.8),
    ("640100", "Yinchuan", "银川", "Ningxia", "宁夏", 38.5, 106.2),
    ("150100", "Hohhot", "呼和浩特", "Inner Mongolia", "内蒙古", 40.8, 111.7),
    ("650100", "Urumqi", "乌鲁木齐", "Xinjiang", "新疆", 43.8, 87.6),
    ("450300", "Guilin", "桂林", "Guangxi", "广西", 25.3, 110.3),
    ("140100", "Taiyuan", "太原", "Shanxi", "山西", 37.9, 112.6),
)

_OTHERS: tuple[tuple[str, str, str, str, str, float, float], ...] = (
    ("320500", "Suzhou", "苏州", "Jiangsu", "江苏", 31.3, 120.6),
    ("341300", "Suzhou", "宿州", "Anhui", "安徽", 33.6, 117.0),
    ("350100", "Fuzhou", "福州", "Fujian", "福建", 26.1, 119.3),
    ("361000", "Fuzhou", "抚州", "Jiangxi", "江西", 28.0, 116.4),
    ("331000", "Taizhou", "台州", "Zhejiang", "浙江", 28.7, 121.4),
    ("321200", "Taizhou", "泰州", "Jiangsu", "江苏", 32.5, 119.9),
    ("360900", "Yichun", "宜春", "Jiangxi", "江西", 27.8, 114.4),
    ("230700", "Yichun", "伊春", "Heilongjiang", "黑龙江", 47.7, 128.9),
    ("211300", "Chaoyang", "朝阳", "Liaoning", "辽宁", 41.6, 120.5),
    ("110105", "Chaoyang", "朝阳", "Beijing", "北京", 39.9, 116.5),
)


def _key(name: str) -> str:
    return name.lower().replace("'", "").replace(" ", "_")


CITIES: dict[str, Region] = {_key(row[1]): Region(_key(row[1]), *row) for row in _ROWS}
"""The 34 served cities, by key."""

_UNSERVED_KEYS = ("chaoyang_beijing",)
_AMBIGUOUS = tuple(Region(_key(f"{row[1]} {row[3]}"), *row, is_served=_key(f"{row[1]} {row[3]}") not in _UNSERVED_KEYS) for row in _OTHERS)


def _spellings(region: Region) -> set[str]:
    en, zh = region.en.lower(), region.zh
    return {
        en, en.replace("'", ""), zh, f"{zh}市", region.adcode, f"{en} city",
        f"{en}, {region.province_en.lower()}", f"{en} {region.province_en.lower()}", f"{region.province_zh}{zh}",
        f"{region.province_zh}省{zh}市", f"{region.province_zh}{zh}市",
    }  # fmt: skip


_BY_NAME: dict[str, list[Region]] = {}
for _region in (*CITIES.values(), *_AMBIGUOUS):
    for _spelling in sorted(_spellings(_region)):
        _BY_NAME.setdefault(_spelling, []).append(_region)


def resolve(name: str) -> list[Region]:
    """All regions that `name` may mean; empty where there is none."""
    return _BY_NAME.get(" ".join(name.lower().split()), [])
